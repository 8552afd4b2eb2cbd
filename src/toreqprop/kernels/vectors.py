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
    parts = [builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(LANES)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [joined(builder, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


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


def _bends_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, q = given
    g, h = builder.fsub(y, x), builder.fsub(y, q)
    stiff = builder.fsub(ir.Constant(y.type, [1 + SOFTEST] * LANES), builder.fmul(y, y))
    bent = builder.fdiv(g, stiff)
    return [
        builder.fadd(sums[0], builder.fmul(bent, g)),
        builder.fadd(sums[1], builder.fmul(bent, h)),
        builder.fadd(sums[2], builder.fmul(builder.fdiv(h, stiff), h)),
    ]


def _joints_step(builder: Any, given: Values, sums: Values) -> Values:
    (y, x, q), (wy, wx, wq), m = given[:3], given[3:6], given[6]
    g, h, e = builder.fsub(y, x), builder.fsub(y, q), builder.fsub(y, m)
    a, c = builder.fsub(wy, wx), builder.fsub(wy, wq)
    pairs = ((g, a), (g, c), (h, a), (h, c), (a, e), (c, e))
    parts = [builder.fmul(*pair) for pair in pairs]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


def _stiffness_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, s = given
    g = builder.fsub(y, x)
    stiff = builder.fsub(ir.Constant(y.type, [1 + SOFTEST] * LANES), builder.fmul(s, s))
    soft = builder.fdiv(ir.Constant(y.type, [1.0] * LANES), stiff)
    bent, turned = builder.fmul(y, soft), builder.fmul(g, soft)
    parts = [builder.fmul(*pair) for pair in ((bent, y), (bent, g), (turned, g))]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


def _links_step(builder: Any, given: Values, sums: Values) -> Values:
    y, x, wy, wx, m = given
    g, a, e = builder.fsub(y, x), builder.fsub(wy, wx), builder.fsub(y, m)
    pairs = ((y, wy), (y, a), (g, wy), (g, a), (wy, e), (a, e))
    parts = [builder.fmul(*pair) for pair in pairs]
    return [builder.fadd(total, part) for total, part in zip(sums, parts, strict=True)]


SOFTEST = 1e-5
"""Added to the slope ``1 − y²`` of a saturated neuron, which is zero in float32."""

_whole_product = _sums(1, _product_step)
_whole_bends = _sums(3, _bends_step)
_whole_joints = _sums(6, _joints_step)
_whole_stiffness = _sums(3, _stiffness_step)
_whole_links = _sums(6, _links_step)
_whole_squares = _sums(2, _squares_step)
_whole_peak = _sums(1, _peak_step, _larger)


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
def bends(y, x, q):  # type: ignore[no-untyped-def]
    """``⟨g, g/σ'⟩``, ``⟨g, h/σ'⟩`` and ``⟨h, h/σ'⟩`` of ``g = y − x``, ``h = y − q``, with the
    slope ``σ' = 1 − y²`` of tanh units."""
    count = y.shape[0]
    whole = count - count % LANES
    first, mixed, second = _whole_bends((y, x, q), whole)
    for j in range(whole, count):
        g, h = y[j] - x[j], y[j] - q[j]
        stiff = y.dtype.type(1 + SOFTEST) - y[j] * y[j]
        first += g / stiff * g
        mixed += g / stiff * h
        second += h / stiff * h
    return float(first), float(mixed), float(second)


@helper
def joints(y, x, q, wy, wx, wq, m):  # type: ignore[no-untyped-def]
    """``⟨g, a⟩``, ``⟨g, c⟩``, ``⟨h, a⟩``, ``⟨h, c⟩``, ``⟨a, e⟩`` and ``⟨c, e⟩`` of ``g = y − x``,
    ``h = y − q``, ``a = wy − wx``, ``c = wy − wq``, ``e = y − m``."""
    count = y.shape[0]
    whole = count - count % LANES
    ga, gc, ha, hc, ae, ce = _whole_joints((y, x, q, wy, wx, wq, m), whole)
    for j in range(whole, count):
        g, h, e = y[j] - x[j], y[j] - q[j], y[j] - m[j]
        a, c = wy[j] - wx[j], wy[j] - wq[j]
        ga += g * a
        gc += g * c
        ha += h * a
        hc += h * c
        ae += a * e
        ce += c * e
    return float(ga), float(gc), float(ha), float(hc), float(ae), float(ce)


@helper
def stiffness(y, x, s, out):  # type: ignore[no-untyped-def]
    """To ``out``: ``⟨y, y/σ'⟩``, ``⟨y, g/σ'⟩`` and ``⟨g, g/σ'⟩`` of ``g = y − x``, with the slope
    ``σ' = 1 − s²`` of tanh units at s."""
    count = y.shape[0]
    whole = count - count % LANES
    first, mixed, second = _whole_stiffness((y, x, s), whole)
    for j in range(whole, count):
        g = y[j] - x[j]
        stiff = y.dtype.type(1 + SOFTEST) - s[j] * s[j]
        first += y[j] / stiff * y[j]
        mixed += y[j] / stiff * g
        second += g / stiff * g
    out[0], out[1], out[2] = first, mixed, second


@helper
def links(y, x, wy, wx, m, out):  # type: ignore[no-untyped-def]
    """To ``out``: ``⟨y, wy⟩``, ``⟨y, a⟩``, ``⟨g, wy⟩``, ``⟨g, a⟩``, ``⟨wy, e⟩`` and ``⟨a, e⟩`` of
    ``g = y − x``, ``a = wy − wx``, ``e = y − m``."""
    count = y.shape[0]
    whole = count - count % LANES
    yw, ya, gw, ga, we, ae = _whole_links((y, x, wy, wx, m), whole)
    for j in range(whole, count):
        g, a, e = y[j] - x[j], wy[j] - wx[j], y[j] - m[j]
        yw += y[j] * wy[j]
        ya += y[j] * a
        gw += g * wy[j]
        ga += g * a
        we += wy[j] * e
        ae += a * e
    out[0], out[1], out[2], out[3], out[4], out[5] = yw, ya, gw, ga, we, ae


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
