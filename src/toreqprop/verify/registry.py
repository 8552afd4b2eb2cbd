"""The tracks, found by file name: adding ``tracks/track_NN_name.py`` adds a track."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache

from toreqprop.errors import InvalidInputError
from toreqprop.verify import tracks
from toreqprop.verify.track import Track


@cache
def all_tracks() -> dict[int, Track]:
    """Every track by number, in order."""
    found: dict[int, Track] = {}
    for module in pkgutil.iter_modules(tracks.__path__):
        if not module.name.startswith("track_"):
            continue
        track = importlib.import_module(f"{tracks.__name__}.{module.name}").TRACK
        if track.number in found or not module.name.startswith(f"track_{track.number:02d}_"):
            raise InvalidInputError(f"{module.name}.py holds track {track.number}: rename one.")
        found[track.number] = track
    return dict(sorted(found.items()))


def select(numbers: Sequence[int], names: Sequence[str]) -> list[Track]:
    """The tracks with these numbers, and those whose title holds one of these names; else all.

    Raises:
        InvalidInputError: a number or name fits none; the message lists what there is.
    """
    known = all_tracks()
    if not numbers and not names:
        return list(known.values())
    listing = ", ".join(f"{number} {track.title}" for number, track in known.items())
    chosen: set[int] = set()
    for number in numbers:
        if number not in known:
            raise InvalidInputError(f"There is no track {number}; there are: {listing}.")
        chosen.add(number)
    for name in names:
        wanted = name.lower().replace("-", " ").replace("_", " ")
        fits = {
            n
            for n, t in known.items()
            if wanted in t.title.lower().replace("-", " ") or wanted == str(n)
        }
        if not fits:
            raise InvalidInputError(f"No track is called {name!r}; there are: {listing}.")
        chosen |= fits
    return [known[number] for number in sorted(chosen)]
