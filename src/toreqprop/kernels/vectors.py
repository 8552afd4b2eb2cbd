"""Sums and transpositions in vectors of fixed length, for the compiled loops.

A sum that the compiler may not reorder runs one number at a time. Here the order is written down:
`LANES` partial sums side by side, added up in one fixed tree. Every processor computes the same,
with the widest registers it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from toreqprop.kernels.compiling import compiled, helper

LANES = 16
TILE = 8
"""Side of a tile of a transposition."""


Values = Sequence[ir.Value]
Step = Callable[[Any, Values, Values], Values]
Joined = Callable[[Any, Any, Any], Any]


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _added(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _sums(count: int, step: Step, joined: Joined = _added) -> Callable[..., Any]:
    """An intrinsic ``(arrays..., whole) → count sums`` over the entries before ``whole``."""

    def typed(typing: Any, arrays: Any, whole: Any) -> Any:
        kind = arrays[0].dtype
        signature = types.UniTuple(kind, count)(arrays, whole)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            places, end = args
            number = context.get_data_type(kind)
            vector = ir.VectorType(number, LANES)
            data = [
                context.make_array(t)(context, builder, builder.extract_value(places, k)).data
                for k, t in enumerate(arrays)
            ]
            sums = [
                cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(count)
            ]
            stride = ir.Constant(end.type, LANES)
            with cgutils.for_range_slice(builder, ir.Constant(end.type, 0), end, stride) as (j, _):
                given = []
                for pointer in data:
                    at = builder.bitcast(builder.gep(pointer, [j]), vector.as_pointer())
                    loaded = builder.load(at)
                    loaded.align = kind.bitwidth // 8
                    given.append(loaded)
                for place, new in zip(
                    sums, step(builder, given, [builder.load(s) for s in sums]), strict=True
                ):
                    builder.store(new, place)
            totals = [folded(builder, builder.load(s), joined) for s in sums]
            return context.make_tuple(builder, signature.return_type, totals)

        return signature, codegen

    return intrinsic(typed)


def folded(builder: Any, vector: Any, joined: Joined = _added) -> Any:
    """The sum, or another reduction, of a vector's lanes, halves first."""
    lane, half = ir.IntType(32), LANES // 2
    while half:
        halves = [
            ir.Constant(ir.VectorType(lane, half), list(range(k, k + half))) for k in (0, half)
        ]
        nothing = ir.Constant(vector.type, ir.Undefined)
        one, other = (builder.shuffle_vector(vector, nothing, each) for each in halves)
        vector, half = joined(builder, one, other), half // 2
    return builder.extract_element(vector, ir.Constant(lane, 0))


def _product_step(builder: Any, given: Values, sums: Values) -> Values:
    a, b = given
    return [builder.fadd(sums[0], builder.fmul(a, b))]


def _squares_step(builder: Any, given: Values, sums: Values) -> Values:
    a, b = given
    change = builder.fsub(a, b)
    return [
        builder.fadd(sums[0], builder.fmul(change, change)),
        builder.fadd(sums[1], builder.fmul(a, a)),
    ]


def _peak_step(builder: Any, given: Values, sums: Values) -> Values:
    size = builder.fneg(given[0])
    size = builder.select(builder.fcmp_ordered(">", given[0], size), given[0], size)
    return [builder.select(builder.fcmp_ordered(">", size, sums[0]), size, sums[0])]


def _softened(builder: Any, value: Any) -> tuple[Any, Any]:
    """The square of a tanh unit's state, and one over its slope."""
    square, kind = builder.fmul(value, value), value.type
    stiff = builder.fsub(ir.Constant(kind, [1 + SOFTEST] * LANES), square)
    return square, builder.fdiv(ir.Constant(kind, [1.0] * LANES), stiff)


def _bends_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, q = given
    g, h = builder.fsub(y, x), builder.fsub(y, q)
    square, soft = _softened(builder, y)
    bent, turned = builder.fmul(g, soft), builder.fmul(h, soft)
    pairs = ((bent, g), (bent, h), (turned, h), (g, g))
    parts = [*(builder.fmul(*pair) for pair in pairs), square]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


def _stiffness_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, s = given
    g, (_, soft) = builder.fsub(y, x), _softened(builder, s)
    bent, turned = builder.fmul(y, soft), builder.fmul(g, soft)
    pairs = ((bent, y), (bent, g), (turned, g), (g, g), (y, y))
    parts = [builder.fmul(*pair) for pair in pairs]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


def _apart_step(builder: Any, given: Values, sums: Values) -> Values:
    # Three sums at once: with six of them registers run out, and it takes twice as long.
    y, *others, w, v = given
    a = builder.fsub(w, v)
    parts = [builder.fmul(builder.fsub(y, other), a) for other in others]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


def _ties_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, m, w = given
    ends = (y, builder.fsub(y, x), builder.fsub(y, m))
    return [
        builder.fadd(total, builder.fmul(end, w)) for total, end in zip(sums, ends, strict=True)
    ]


def _turns_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, m, w, v = given
    return _ties_step(builder, (y, x, m, builder.fsub(w, v)), sums)


def _overlap_step(builder: Any, given: Values, sums: Values) -> Values:
    a, b, c, d = given
    product = builder.fmul(builder.fsub(a, b), builder.fsub(c, d))
    return [builder.fadd(sums[0], product)]


def _strains_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, t, e, *fed = given
    half = ir.Constant(y.type, [0.5] * LANES)
    strain, change = builder.fmul(half, t), builder.fmul(half, builder.fsub(t, e))
    pairs = []
    if fed:
        h, low, s = fed
        more, late = builder.fsub(h, low), builder.fsub(y, s)
        strain, change = builder.fsub(strain, h), builder.fsub(change, more)
        pairs = [(h, late), (more, late)]
    step = builder.fsub(y, x)
    pairs = [(y, strain), (step, strain), (y, change), (step, change), *pairs]
    parts = [builder.fmul(*pair) for pair in pairs]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


def _curved_step(builder: Any, given: Values, sums: Values) -> Values:
    y, m, s = given
    _, soft = _softened(builder, s)
    bent, turned = builder.fmul(y, soft), builder.fmul(m, soft)
    parts = [builder.fmul(*pair) for pair in ((bent, y), (bent, m), (turned, m))]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


SOFTEST = 1e-5
"""Added to the slope ``1 − y²`` of a saturated neuron, which is zero in float32."""

_whole_product = _sums(1, _product_step)
_whole_bends = _sums(5, _bends_step)
_whole_apart = _sums(3, _apart_step)
_whole_stiffness = _sums(5, _stiffness_step)
_whole_ties = _sums(3, _ties_step)
_whole_curved = _sums(3, _curved_step)
_whole_turns = _sums(3, _turns_step)
_whole_squares = _sums(2, _squares_step)
_whole_peak = _sums(1, _peak_step, _larger)
_whole_overlap = _sums(1, _overlap_step)
_whole_strains = _sums(4, _strains_step)
_whole_fed_strains = _sums(6, _strains_step)


@helper
def dot(a, b):  # type: ignore[no-untyped-def]
    """``a·b``."""
    count = a.shape[0]
    whole = count - count % LANES
    total = _whole_product((a, b), whole)[0]
    for j in range(whole, count):
        total += a[j] * b[j]
    return float(total)


@helper
def squares(a, b):  # type: ignore[no-untyped-def]
    """``‖a − b‖²`` and ``‖a‖²``."""
    count = a.shape[0]
    whole = count - count % LANES
    distance, size = _whole_squares((a, b), whole)
    for j in range(whole, count):
        change = a[j] - b[j]
        distance += change * change
        size += a[j] * a[j]
    return float(distance), float(size)


@helper
def bends(y, x, q, out):  # type: ignore[no-untyped-def]
    """To ``out``: ``⟨g, g/σ'⟩``, ``⟨g, h/σ'⟩`` and ``⟨h, h/σ'⟩`` of ``g = y − x``, ``h = y − q``,
    with the slope ``σ' = 1 − y²`` of tanh units. Returns ``‖g‖²`` and ``‖y‖²``."""
    count = y.shape[0]
    whole = count - count % LANES
    first, mixed, second, distance, size = _whole_bends((y, x, q), whole)
    for j in range(whole, count):
        g, h = y[j] - x[j], y[j] - q[j]
        soft = y.dtype.type(1) / (y.dtype.type(1 + SOFTEST) - y[j] * y[j])
        first += g * soft * g
        mixed += g * soft * h
        second += h * soft * h
        distance += g * g
        size += y[j] * y[j]
    out[0], out[1], out[2] = first, mixed, second
    return float(distance), float(size)


@helper
def apart(y, x, q, m, w, v):  # type: ignore[no-untyped-def]
    """``⟨y − x, a⟩``, ``⟨y − q, a⟩`` and ``⟨y − m, a⟩`` with ``a = w − v``."""
    count = y.shape[0]
    whole = count - count % LANES
    one, two, three = _whole_apart((y, x, q, m, w, v), whole)
    for j in range(whole, count):
        a = w[j] - v[j]
        one += (y[j] - x[j]) * a
        two += (y[j] - q[j]) * a
        three += (y[j] - m[j]) * a
    return float(one), float(two), float(three)


@helper
def stiffness(y, x, s, out):  # type: ignore[no-untyped-def]
    """To ``out``: ``⟨y, y/σ'⟩``, ``⟨y, g/σ'⟩`` and ``⟨g, g/σ'⟩`` of ``g = y − x``, with the slope
    ``σ' = 1 − s²`` of tanh units at s. Returns ``‖g‖²`` and ``‖y‖²``."""
    count = y.shape[0]
    whole = count - count % LANES
    first, mixed, second, distance, size = _whole_stiffness((y, x, s), whole)
    for j in range(whole, count):
        g = y[j] - x[j]
        soft = y.dtype.type(1) / (y.dtype.type(1 + SOFTEST) - s[j] * s[j])
        first += y[j] * soft * y[j]
        mixed += y[j] * soft * g
        second += g * soft * g
        distance += g * g
        size += y[j] * y[j]
    out[0], out[1], out[2] = first, mixed, second
    return float(distance), float(size)


@helper
def links(y, x, wy, wx, m, out):  # type: ignore[no-untyped-def]
    """To ``out``: ``⟨y, wy⟩``, ``⟨y, a⟩``, ``⟨g, wy⟩``, ``⟨g, a⟩``, ``⟨wy, e⟩`` and ``⟨a, e⟩`` of
    ``g = y − x``, ``a = wy − wx``, ``e = y − m``."""
    count = y.shape[0]
    whole = count - count % LANES
    yw, gw, ew = _whole_ties((y, x, m, wy), whole)
    ya, ga, ea = _whole_turns((y, x, m, wy, wx), whole)
    for j in range(whole, count):
        g, a, e = y[j] - x[j], wy[j] - wx[j], y[j] - m[j]
        yw += y[j] * wy[j]
        ya += y[j] * a
        gw += g * wy[j]
        ga += g * a
        ew += wy[j] * e
        ea += a * e
    out[0], out[1], out[2], out[3], out[4], out[5] = yw, ya, gw, ga, ew, ea


@helper
def curved(y, m, s):  # type: ignore[no-untyped-def]
    """``⟨y, y/σ'⟩``, ``⟨y, m/σ'⟩`` and ``⟨m, m/σ'⟩`` with the slope ``σ' = 1 − s²`` of tanh units
    at s."""
    count = y.shape[0]
    whole = count - count % LANES
    first, mixed, second = _whole_curved((y, m, s), whole)
    for j in range(whole, count):
        soft = y.dtype.type(1) / (y.dtype.type(1 + SOFTEST) - s[j] * s[j])
        first += y[j] * soft * y[j]
        mixed += y[j] * soft * m[j]
        second += m[j] * soft * m[j]
    return float(first), float(mixed), float(second)


@helper
def overlapping(a, b, c, d):  # type: ignore[no-untyped-def]
    """``⟨a − b, c − d⟩``."""
    count = a.shape[0]
    whole = count - count % LANES
    total = _whole_overlap((a, b, c, d), whole)[0]
    for j in range(whole, count):
        total += (a[j] - b[j]) * (c[j] - d[j])
    return float(total)


@helper
def strains(y, x, t, e):  # type: ignore[no-untyped-def]
    """``⟨y, p⟩``, ``⟨g, p⟩``, ``⟨y, q⟩`` and ``⟨g, q⟩`` of ``g = y − x``, ``p = ½t`` and
    ``q = ½(t − e)``."""
    count = y.shape[0]
    whole = count - count % LANES
    first, one, two, second = _whole_strains((y, x, t, e), whole)
    half = y.dtype.type(0.5)
    for j in range(whole, count):
        g, p, q = y[j] - x[j], half * t[j], half * (t[j] - e[j])
        first += y[j] * p
        one += g * p
        two += y[j] * q
        second += g * q
    return float(first), float(one), float(two), float(second)


@helper
def fed_strains(y, x, t, e, h, low, s):  # type: ignore[no-untyped-def]
    """The same of ``p = ½t − h`` and ``q = ½(t − e) − a`` with ``a = h − low``; then ``⟨h, l⟩`` and
    ``⟨a, l⟩`` of ``l = y − s``."""
    count = y.shape[0]
    whole = count - count % LANES
    first, one, two, second, fall, across = _whole_fed_strains((y, x, t, e, h, low, s), whole)
    half = y.dtype.type(0.5)
    for j in range(whole, count):
        g, a, late = y[j] - x[j], h[j] - low[j], y[j] - s[j]
        p, q = half * t[j] - h[j], half * (t[j] - e[j]) - a
        first += y[j] * p
        one += g * p
        two += y[j] * q
        second += g * q
        fall += h[j] * late
        across += a * late
    return float(first), float(one), float(two), float(second), float(fall), float(across)


@compiled
def distances(a, b, c):  # type: ignore[no-untyped-def]
    """``‖a − b‖`` and ``‖c‖`` of arrays of any shape."""
    a, b, c = a.reshape(-1), b.reshape(-1), c.reshape(-1)
    return math.sqrt(squares(a, b)[0]), math.sqrt(squares(c, c)[1])


@helper
def largest_magnitude(a):  # type: ignore[no-untyped-def]
    """``max |a_j|`` of finite numbers."""
    count = a.shape[0]
    whole = count - count % LANES
    peak = _whole_peak((a,), whole)[0]
    for j in range(whole, count):
        peak = max(peak, abs(a[j]))
    return peak


@intrinsic
def transpose_tile(typing, source, at, target, to):  # type: ignore[no-untyped-def]
    """Write ``source[r:r+8, c:c+8]`` transposed to ``target[p:p+8, q:q+8]``; (r, c), (p, q)."""
    signature = types.void(source, at, target, to)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        vector = ir.VectorType(context.get_data_type(source.dtype), TILE)

        def row(kind, array, place, offset):  # type: ignore[no-untyped-def]
            made = context.make_array(kind)(context, builder, array)
            width = builder.extract_value(made.shape, 1)
            top, left = (builder.extract_value(place, k) for k in (0, 1))
            line = builder.add(top, ir.Constant(top.type, offset))
            entry = builder.add(builder.mul(line, width), left)
            return builder.bitcast(builder.gep(made.data, [entry]), vector.as_pointer())

        align = source.dtype.bitwidth // 8
        rows = []
        for offset in range(TILE):
            rows.append(builder.load(row(source, args[0], args[1], offset)))
            rows[-1].align = align
        for block in (4, 2, 1):
            for i in range(TILE):
                if i & block:
                    continue
                a, b = rows[i], rows[i | block]
                upper = [k + TILE - block if k & block else k for k in range(TILE)]
                lower = [k + TILE if k & block else k + block for k in range(TILE)]
                mask = ir.VectorType(ir.IntType(32), TILE)
                rows[i] = builder.shuffle_vector(a, b, ir.Constant(mask, upper))
                rows[i | block] = builder.shuffle_vector(a, b, ir.Constant(mask, lower))
        for offset in range(TILE):
            stored = builder.store(rows[offset], row(target, args[2], args[3], offset))
            stored.align = align
        return context.get_dummy_value()

    return signature, codegen
