"""The index of numbered claims: complete, and of tracks that exist."""

from __future__ import annotations

from toreqprop.verify.claims import ELSEWHERE, NUMBERS, own, table
from toreqprop.verify.registry import all_tracks


def test_every_number_has_an_entry() -> None:
    assert tuple(ELSEWHERE) == NUMBERS
    lines = table()
    assert len(lines) == 2 + len(NUMBERS)
    assert all(line.count(" | ") >= 2 for line in lines[2:])


def test_a_number_without_a_track_says_why_and_what_to_see() -> None:
    known = all_tracks()
    for number, claim in ELSEWHERE.items():
        assert set(claim.see) <= set(known)
        if number not in known:
            assert claim.why, number
            assert f"| {number} | {claim.elsewhere} | no track." in "\n".join(table())


def test_numbers_of_our_own_are_listed() -> None:
    text = "\n".join(own())
    for number in set(all_tracks()) - set(NUMBERS):
        assert f"* {number}, {all_tracks()[number].title}: " in text
