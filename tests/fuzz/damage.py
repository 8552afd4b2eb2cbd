"""Random damage to files, and to the plain data in them."""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

VARIABLE = "TOREQPROP_FUZZ_CASES"
"""How many cases all the tests of this folder try together; `scripts/fuzz.py` sets it."""

CASES = int(os.environ.get(VARIABLE, "200"))
TESTS = 8
"""Tests that share the cases."""

cases = settings(
    max_examples=-(-CASES // TESTS),
    deadline=None,  # no clock decides
    database=None,
    derandomize=VARIABLE not in os.environ,  # the same cases in every run of the tests
    suppress_health_check=list(HealthCheck),
)

TOKENS = (
    *(b"NaN", b"1e999", b"-Infinity", b"null", b"true", b'"', b"{", b"}", b"[", b"]", b":", b","),
    *(b"\0", b"\xff\xfe", b"\r\n", b";", b"9" * 400, b"[" * 3000, b"-1", b"1e308", b"\xef\xbb\xbf"),
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes after one to four cuts, insertions, exchanges or repetitions."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        upto = min(len(found), at + draw(st.integers(0, 40)))
        kind = draw(st.sampled_from(["cut", "delete", "insert", "token", "replace", "repeat"]))
        if kind == "cut":
            del found[at:]
        elif kind == "delete":
            del found[at:upto]
        elif kind == "insert":
            found[at:at] = draw(st.binary(min_size=1, max_size=20))
        elif kind == "token":
            found[at:upto] = draw(st.sampled_from(TOKENS))
        elif kind == "replace" and at < len(found):
            found[at] = draw(st.integers(0, 255))
        elif kind == "repeat":
            found[at:at] = found[at:upto] * draw(st.integers(1, 50))
    return bytes(found)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**6, 10**12, 10**30, -(2**63), 2**64]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["looped", "float64", "CenteredEP", "FixedPoint", "Tanh"]),
    st.lists(st.integers(-2, 9), max_size=4),
    st.dictionaries(st.sampled_from(["type", "beta", "x"]), st.integers(0, 3), max_size=2),
    st.just({"type": "FixedPoint"}),
    st.just({"type": "CenteredEP"}),
)


@st.composite
def altered(draw: st.DrawFn, data: Any) -> Any:
    """Nested plain data with one to three places changed, removed or added."""
    found = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        place = found
        for _ in range(draw(st.integers(0, 5))):
            inner = [v for v in _values(place) if isinstance(v, dict | list) and v]
            if not inner:
                break
            place = inner[draw(st.integers(0, len(inner) - 1))]
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            continue
        key = keys[draw(st.integers(0, len(keys) - 1))]
        kind = draw(st.sampled_from(["change", "change", "remove", "add"]))
        if kind == "change":
            place[key] = copy.deepcopy(draw(VALUES))
        elif kind == "remove":
            del place[key]
        elif isinstance(place, dict):
            place[draw(st.text(max_size=4))] = copy.deepcopy(draw(VALUES))
        else:
            place.append(copy.deepcopy(draw(VALUES)))
    return found


def _values(place: Any) -> list[Any]:
    return list(place.values()) if isinstance(place, dict) else list(place)
