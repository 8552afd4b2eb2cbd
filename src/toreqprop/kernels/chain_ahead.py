"""Where phases of stacks begin: with what will come back to a layer through the one next to it.

A layer hears itself again as ``WᵀW`` sends it back, W being the coupling above it, and the top as
``WWᵀ`` does. What is slow about it are the few directions in which W is large: those that training
makes large, about one for every class. The estimate of W's norm knows them at every step. In these
directions what comes back is summed to its end, in all others W counts as large as it is on
average. It is where a phase begins, and changes nothing of where it ends.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.compiling import helper
from toreqprop.kernels.loops import tanh
from toreqprop.kernels.products import product
from toreqprop.kernels.vectors import dot

KNOWN, REST, SINGULAR = 0, 1, 2
"""Columns of ``slow``, a row for every coupling: how many directions are known, the sum of the
squares of all other singular values, and from there on those that are known, the largest first. All
zero where nothing is known."""

LEAD = 0.7
"""Of ``‖W‖²``, the mean square of the singular values where the norm alone is known: with full
feedback near the edge of stability 0.5 to 0.65 in trained networks of 256 and 1024 neurons."""

LEAST = 0.2
"""What a sum to its end divides by at least: nearer to a bifurcation it is no guess."""


@helper
def nothing_slow(couplings):  # type: ignore[no-untyped-def]
    """Nothing is known of any coupling."""
    return np.zeros((couplings, SINGULAR))


@helper
def _others(slow, width):  # type: ignore[no-untyped-def]
    """The mean square of the singular values that are not known, of a side of so many neurons."""
    return slow[REST] / max(width - int(slow[KNOWN]), 1)


@helper
def _summed(slow, width, factor, slope, along):  # type: ignore[no-untyped-def]
    """What comes back of a sample: its part ``along`` each direction becomes what comes back more
    than of all others, for which that is a share of the whole, which is returned.

    ``factor·σ²`` is what comes back at once, ``slope`` what of it the layer itself takes on.
    """
    others = _others(slow, width)
    share = factor * others / max(1 - factor * slope * others, LEAST)
    for k in range(int(slow[KNOWN])):
        square = slow[SINGULAR + k] * slow[SINGULAR + k]
        told = factor * square / max(1 - factor * slope * square, LEAST)
        along[k] *= along.dtype.type(told - share)
    return share


@helper
def _slope_above(slow, along, size, widths, feedback, slope):  # type: ignore[no-untyped-def]
    """γ times the slope of the layer above, one number for all of its neurons:
    ``1/√(1 + ½π·r²)`` at preactivations of size r. These are summed to their end, too."""
    known, inside = int(slow[KNOWN]), 0.0
    for k in range(known):
        inside += along[k] * along[k]
    remaining = _others(slow, widths[0]) * max(size - inside, 0.0)
    factor = 0.0
    for _ in range(2):  # at first as if nothing came back
        whole = remaining
        for k in range(known):
            square = slow[SINGULAR + k] * slow[SINGULAR + k]
            reached = along[k] / max(1 - factor * slope * square, LEAST)
            whole += square * reached * reached
        factor = feedback / math.sqrt(1 + 0.5 * math.pi * whole / widths[1])
    return factor


@helper
def settle_ahead(  # type: ignore[no-untyped-def]
    gemm, up, bias, places, slow, right, feedback, rows, down, out
):
    """``tanh(u + γ·WᵀT(Ws))`` of a layer with ``u = up + bias``, s being what it will be and T the
    slope of the layer above.

    ``places`` are the first columns of the layer, of that above and behind it, ``right`` is the
    address of W's right vectors; ``down`` is written to.
    """
    a, b, c = places
    width, known = b - a, int(slow[KNOWN])
    own = bias[a:b]
    # The last column is the share of all others: read at the end, it keeps the array until then.
    parts = np.empty((rows, known + 1), up.dtype)
    for i in range(rows):
        below, row = up[i, a:b], out[i, a:b]
        for j in range(width):
            row[j] = tanh(below[j] + own[j])
    if known:
        product(gemm, out, right, parts, rows, (a, 0, known, width, True))
    for i in range(rows):
        size = dot(out[i, a:b], out[i, a:b])
        slope = 1 - size / width
        factor = _slope_above(slow, parts[i], size, (width, c - b), feedback, slope)
        parts[i, known] = _summed(slow, width, factor, slope, parts[i])
    if known:
        product(gemm, parts, right, down, rows, (0, a, known, width, False))
    for i in range(rows):
        below, back, row, share = up[i, a:b], down[i, a:b], out[i, a:b], parts[i, known]
        if known:
            for j in range(width):
                row[j] = tanh(below[j] + own[j] + share * row[j] + back[j])
        else:
            for j in range(width):
                row[j] = tanh(below[j] + own[j] + share * row[j])


@helper
def shift_ahead(gemm, image, places, slow, left, feedback, rows, shift, down):  # type: ignore[no-untyped-def]
    """To ``down``: what will come back to the top of its ``shift``, around a center whose image is
    given. ``places`` are the first columns of the layer below, of the top and behind it, ``left``
    is the address of the left vectors of the coupling between them."""
    a, b, c = places
    width, known = c - b, int(slow[KNOWN])
    parts = np.empty((rows, known + 1), shift.dtype)
    product(gemm, shift, left, parts, rows, (b, 0, known, width, True))
    for i in range(rows):
        beneath = 1 - dot(image[i, a:b], image[i, a:b]) / (b - a)
        slope = 1 - dot(image[i, b:c], image[i, b:c]) / width
        parts[i, known] = _summed(slow, width, feedback * beneath, slope, parts[i])
    product(gemm, parts, left, down, rows, (0, b, known, width, False))
    for i in range(rows):
        row, begun, share = down[i, b:c], shift[i, b:c], parts[i, known]
        for j in range(width):
            row[j] += share * begun[j]
