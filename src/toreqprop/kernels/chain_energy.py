"""Where the energy of a stack of layers is smallest along two directions in each of them.

Both phases go on from a pass by this: conjugate gradients with a pass as preconditioner, and with
factors of its own for every layer.
"""

from __future__ import annotations

import math

from toreqprop.kernels.compiling import helper


@helper
def least_energy(own, link, force, heat, work, found):  # type: ignore[no-untyped-def]
    """How far each layer goes on along two directions v, w of its own, so that energy is smallest.

    ``own`` (layers, 3) has ``⟨v, v/σ'⟩, ⟨v, w/σ'⟩, ⟨w, w/σ'⟩``, ``link`` (layers, ≥ 4) the products
    ``⟨v, Wv'⟩, ⟨v, Ww'⟩, ⟨w, Wv'⟩, ⟨w, Ww'⟩`` with the directions v', w' of the layer below,
    ``force`` (layers, 2) what pulls along v and w, times the layer's temperature, ``heat``. With v
    and w in turn that is a symmetric system of equations that reaches three back; in units of its
    diagonal it is solved by elimination, in ``work`` (2·layers, 6). ``found`` (layers, 2) is all
    zero where there is no minimum, or one that is far away. What is too small to be squared is left
    out, and so is a w that is v over again. Returns whether the way is no longer than v or w.
    """
    layers = own.shape[0]
    count = 2 * layers
    band, right, unit, pivot = work[:, :3], work[:, 3], work[:, 4], work[:, 5]
    work[:], found[:] = 0, 0
    pivot[:] = 1
    for layer in range(layers):
        t = heat[layer]
        if own[layer, 0] > _TINY:
            unit[2 * layer] = 1 / math.sqrt(t * own[layer, 0])
            if own[layer, 2] > _TINY:
                unit[2 * layer + 1] = 1 / math.sqrt(t * own[layer, 2])
    for layer in range(layers):
        t, y, g = heat[layer], 2 * layer, 2 * layer + 1
        band[g, 2] = t * own[layer, 1] * unit[y] * unit[g]
        if layer > 0:
            band[y, 1] = -t * link[layer, 0] * unit[y] * unit[y - 2]
            band[y, 2] = -t * link[layer, 1] * unit[y] * unit[y - 1]
            band[g, 0] = -t * link[layer, 2] * unit[g] * unit[y - 2]
            band[g, 1] = -t * link[layer, 3] * unit[g] * unit[y - 1]
        right[y], right[g] = force[layer, 0] * unit[y], force[layer, 1] * unit[g]
    for i in range(count):
        if unit[i] == 0:
            continue
        for k in range(3):  # entry (i, i − 3 + k) becomes that of the factor L
            at = i - 3 + k
            if at < 0 or unit[at] == 0:
                band[i, k] = 0.0
                continue
            value = band[i, k]
            for m in range(k):
                if i - 3 + m >= 0:
                    value -= band[i, m] * pivot[i - 3 + m] * band[at, 3 - k + m]
            band[i, k] = value / pivot[at]
        for k in range(3):
            if i - 3 + k >= 0:
                pivot[i] -= band[i, k] * band[i, k] * pivot[i - 3 + k]
                right[i] -= band[i, k] * right[i - 3 + k]
        if i % 2 == 0 and not pivot[i] > 1e-3:
            return False
        if not pivot[i] > 1e-4:
            pivot[i], right[i], unit[i] = 1.0, 0.0, 0.0
            band[i] = 0
    for i in range(count - 1, -1, -1):
        value = right[i] / pivot[i]
        for k in range(1, 4):
            if i + k < count:
                value -= band[i + k, 3 - k] * right[i + k]
        right[i] = value if unit[i] != 0 else 0.0
    way = first = second = 0.0
    for layer in range(layers):
        one, two = right[2 * layer] * unit[2 * layer], right[2 * layer + 1] * unit[2 * layer + 1]
        if not (abs(one) < _FARTHEST and abs(two) < _FARTHEST):
            found[:] = 0
            return False
        found[layer, 0], found[layer, 1] = one, two
        square = one * one * own[layer, 0] + 2 * one * two * own[layer, 1]
        way += heat[layer] * (square + two * two * own[layer, 2])
        first += heat[layer] * own[layer, 0]
        second += heat[layer] * own[layer, 2]
    return way <= min(first, second) if second > 0 else way <= first


_TINY = 1e-34
"""Below that, squares of single numbers begin to leave the range of float32."""

_FARTHEST = 1e3
"""Factors beyond it are made of rounding."""
