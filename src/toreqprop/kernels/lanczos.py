"""The norm of a matrix by a few products with vectors, compiled.

Lanczos with full reorthogonalisation where it is symmetric, and what blocks of vectors need between
their products else. The value comes from below; how far below depends on the start, which
`energies.TightBall` keeps warm.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.products import product
from toreqprop.kernels.vectors import dot


@helper
def _transposed_product(matrix, vector, out):  # type: ignore[no-untyped-def]
    """``Mᵀ·v``, eight rows at a time: several times faster than rows times v."""
    rows, columns = matrix.shape
    whole = rows - rows % 8
    for j in range(columns):
        out[j] = 0
    for i in range(0, whole, 8):
        a, b, c, d = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        e, f, g, h = vector[i + 4], vector[i + 5], vector[i + 6], vector[i + 7]
        p, q, r, s = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        t, u, v, w = matrix[i + 4], matrix[i + 5], matrix[i + 6], matrix[i + 7]
        for j in range(columns):
            out[j] += ((a * p[j] + b * q[j]) + (c * r[j] + d * s[j])) + (
                (e * t[j] + f * u[j]) + (g * v[j] + h * w[j])
            )
    for i in range(whole, rows):
        factor = vector[i]
        for j in range(columns):
            out[j] += factor * matrix[i, j]


@helper
def _block_product(block, matrix, out):  # type: ignore[no-untyped-def]
    """``B·M`` of a few rows B, four rows of M at a time: a third less than the library takes, which
    copies M first."""
    rows, columns = matrix.shape
    whole = rows - rows % 4
    out[:] = 0
    for i in range(0, whole, 4):
        p, q, r, s = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for k in range(block.shape[0]):
            a, b, c, d = block[k, i], block[k, i + 1], block[k, i + 2], block[k, i + 3]
            row = out[k]
            for j in range(columns):
                row[j] += (a * p[j] + b * q[j]) + (c * r[j] + d * s[j])
    for i in range(whole, rows):
        for k in range(block.shape[0]):
            factor, row = block[k, i], out[k]
            for j in range(columns):
                row[j] += factor * matrix[i, j]


@helper
def _cleared(vector, basis, count):  # type: ignore[no-untyped-def]
    """Take the part along ``basis[:count]`` out of a vector, twice, and make it of length one.

    Returns its length before; zero, and a zero vector, where nothing is left of it.
    """
    size = math.sqrt(dot(vector, vector))
    for _ in range(2):
        for k in range(count):
            along = vector.dtype.type(dot(vector, basis[k]))
            for j in range(vector.shape[0]):
                vector[j] -= along * basis[k, j]
    length = math.sqrt(dot(vector, vector))
    if not length > 100 * np.finfo(vector.dtype).eps * size:
        vector[:] = 0
        return 0.0
    factor = vector.dtype.type(1 / length)
    for j in range(vector.shape[0]):
        vector[j] *= factor
    return length


@helper
def _without(vector, basis, count, along):  # type: ignore[no-untyped-def]
    """Take the parts along all of ``basis[:count]`` out of a vector at once, four at a time.
    Returns its length then."""
    for k in range(count):
        along[k] = dot(vector, basis[k])
    whole = count - count % 4
    for k in range(0, whole, 4):
        a, b, c, d = along[k], along[k + 1], along[k + 2], along[k + 3]
        p, q, r, s = basis[k], basis[k + 1], basis[k + 2], basis[k + 3]
        for j in range(vector.shape[0]):
            vector[j] -= (a * p[j] + b * q[j]) + (c * r[j] + d * s[j])
    for k in range(whole, count):
        a, p = along[k], basis[k]
        for j in range(vector.shape[0]):
            vector[j] -= a * p[j]
    return math.sqrt(dot(vector, vector))


@compiled
def extend(basis, known, rows):  # type: ignore[no-untyped-def]
    """Put rows behind ``basis[:known]``, made orthonormal with them and each other; zero where
    nothing is left of one."""
    for k in range(rows.shape[0]):
        row = basis[known + k]
        for j in range(row.shape[0]):
            row[j] = rows[k, j]
        _cleared(row, basis, known + k)


@compiled
def meet(basis, known, images, inner):  # type: ignore[no-untyped-def]
    """The products of ``basis`` with the images, under a symmetric map, of its last vectors, into
    the symmetric ``inner``."""
    for k in range(images.shape[0]):
        new = known + k
        for i in range(known):
            inner[i, new] = dot(basis[i], images[k])
            inner[new, i] = inner[i, new]
        for i in range(k + 1):
            near = dot(basis[known + i], images[k]) + dot(basis[new], images[i])
            inner[known + i, new] = 0.5 * near
            inner[new, known + i] = 0.5 * near


@compiled
def by_distance(every, found):  # type: ignore[no-untyped-def]
    """Add up blocks ``every[y, x, :, y', x']`` of the same distance (y' − y, x' − x), which is
    counted from its smallest."""
    high, wide, below = every.shape[:3]
    for y in range(high):
        for x in range(wide):
            for p in range(high):
                for q in range(wide):
                    for c in range(below):
                        row = found[c, high - 1 - y + p, wide - 1 - x + q]
                        block = every[y, x, c, p, q]
                        for d in range(below):
                            row[d] += block[d]


@helper
def _combined(basis, weights, count, out):  # type: ignore[no-untyped-def]
    """``Σ_k w_k·basis_k``."""
    out[:] = 0
    for k in range(count):
        factor = out.dtype.type(weights[k])
        for j in range(out.shape[0]):
            out[j] += factor * basis[k, j]


@helper
def symmetric_norm(matrix, start, steps, left, right):  # type: ignore[no-untyped-def]
    """The eigenvalue λ of largest size; ``right`` becomes its vector, ``left`` sign(λ) times it."""
    n = matrix.shape[0]
    steps = min(steps, n)
    basis = np.empty((steps, n), matrix.dtype)
    middle, beside, along = np.zeros(steps), np.zeros(steps), np.empty(steps, matrix.dtype)
    for j in range(n):
        basis[0, j] = start[j]
    count = 1 if _cleared(basis[0], basis, 0) > 0 else 0
    work = np.empty(n, matrix.dtype)
    for k in range(steps):
        if count <= k:
            break
        _transposed_product(matrix, basis[k], work)
        middle[k] = dot(work, basis[k])
        if k + 1 == steps:
            break
        # What lies along the last two vectors first: of what is left hardly anything lies along
        # any, so that once is enough for all of them.
        size = math.sqrt(dot(work, work))
        one, two = work.dtype.type(middle[k]), work.dtype.type(beside[k - 1] if k else 0.0)
        last, before = basis[k], basis[k - 1 if k else 0]
        for j in range(n):
            work[j] -= one * last[j] + two * before[j]
        left_over = math.sqrt(dot(work, work))
        length = _without(work, basis, count, along)
        if length < 0.5 * left_over:
            length = _without(work, basis, count, along)
        if not length > 100 * np.finfo(work.dtype).eps * size:
            break
        factor = work.dtype.type(1 / length)
        for j in range(n):
            basis[count, j] = factor * work[j]
        beside[k] = length
        count += 1
    if count == 0 or not (np.isfinite(middle).all() and np.isfinite(beside).all()):
        left[:] = 0
        right[:] = 0
        return np.nan if count else 0.0
    value = _largest(middle[:count], beside[:count])
    _combined(basis, _its_vector(middle[:count], beside[:count], value), count, right)
    sign = matrix.dtype.type(-1 if value < 0 else 1)
    for j in range(n):
        left[j] = sign * right[j]
    return abs(value)


@helper
def _above(middle, beside, value):  # type: ignore[no-untyped-def]
    """How many eigenvalues of a tridiagonal matrix are larger: what Sturm's sequence counts."""
    count, last = 0, 1.0
    for k in range(middle.shape[0]):
        square = beside[k - 1] * beside[k - 1] if k else 0.0
        last = middle[k] - value - square / last
        if last == 0:
            last = 1e-300
        count += last > 0
    return count


@helper
def _largest(middle, beside):  # type: ignore[no-untyped-def]
    """The eigenvalue of largest size of the tridiagonal matrix with this diagonal, and ``beside``
    next to it: bisection between bounds that circles around the diagonal give, to three digits, and
    Newton's method from outside for the rest."""
    count, reach = middle.shape[0], 0.0
    for k in range(count):
        near = beside[k] if k + 1 < count else 0.0
        reach = max(reach, abs(middle[k]) + near + (beside[k - 1] if k else 0.0))
    low, high = 0.0, reach * (1 + 1e-14)
    # The largest r with an eigenvalue beyond r or below −r.
    while high - low > 1e-3 * high:
        half = 0.5 * (low + high)
        if half <= low or half >= high:
            break
        if _above(middle, beside, half) > 0 or _above(middle, beside, -half) < count:
            low = half
        else:
            high = half
    right = _from_outside(middle, beside, high, 1.0)
    if _above(middle, beside, -low) == count:
        return right
    left = _from_outside(middle, beside, high, -1.0)
    return right if right >= left else -left


@helper
def _from_outside(middle, beside, start, sign):  # type: ignore[no-untyped-def]
    """The largest eigenvalue of the tridiagonal matrix times ``sign``, from a number that is larger
    than all of them: from there Newton's method only ever comes down."""
    value = start
    for _ in range(100):
        slope, last, bent = 0.0, 1.0, 0.0
        for k in range(middle.shape[0]):
            square = beside[k - 1] * beside[k - 1] if k else 0.0
            share = square / last
            bent = 1.0 + share * bent / last
            last = value - sign * middle[k] - share
            if not last > 0:  # it is there, but for rounding
                return value
            slope += bent / last
        step = 1 / slope
        value -= step
        if step <= 2e-16 * abs(value):
            break
    return value


@helper
def _its_vector(middle, beside, value):  # type: ignore[no-untyped-def]
    """The eigenvector, of length one, by inverse iteration with a value next to the eigenvalue."""
    count = middle.shape[0]
    vector, shifted = np.ones(count), value * (1 + 1e-13)
    pivot = np.empty(count)
    for _ in range(3):
        for k in range(count):
            pivot[k] = middle[k] - shifted
            if k:
                share = beside[k - 1] / pivot[k - 1]
                pivot[k] -= share * beside[k - 1]
                vector[k] -= share * vector[k - 1]
            if pivot[k] == 0:
                pivot[k] = 1e-300
        for k in range(count - 1, -1, -1):
            behind = beside[k] * vector[k + 1] if k + 1 < count else 0.0
            vector[k] = (vector[k] - behind) / pivot[k]
        vector /= np.abs(vector).max()
        vector /= math.sqrt((vector * vector).sum())
    return vector


@helper
def block_norm(gemm, matrix, start, rounds, left, right, values):  # type: ignore[no-untyped-def]
    """``‖W‖₂`` from below, the best left and right vectors and their singular ``values``, from a
    block ``start``: as many as there is room for.

    As `energies.singular_block.best_in_block` says; ``gemm`` is a routine of `kernels.products`.
    """
    size, (rows, columns) = start.shape[0], matrix.shape
    whole, place = min(rounds * size, rows, columns), matrix.ctypes.data
    basis = np.empty((whole, rows), matrix.dtype)
    products = np.empty((whole, columns), matrix.dtype)
    image = np.empty((size, rows), matrix.dtype)
    product(gemm, start, place, image, size, (0, 0, rows, columns, True))
    for known in range(0, whole, size):
        end = min(known + size, whole)
        for k in range(known, end):
            row = basis[k]
            for j in range(rows):
                row[j] = image[k - known, j]
            _cleared(row, basis, k)  # zero where nothing is left
        fresh, moved = basis[known:end], products[known:end]
        _block_product(fresh, matrix, moved)
        if end < whole:
            product(gemm, moved, place, image, end - known, (0, 0, rows, columns, True))
    return _best_in_basis(basis, products, left, right, values)


@helper
def _best_in_basis(basis, products, left, right, values):  # type: ignore[no-untyped-def]
    """``‖UᵀW‖₂`` from ``products = UᵀW``, and the best vectors on both sides."""
    count = basis.shape[0]
    gram = np.empty((count, count))
    for k in range(count):
        for m in range(k + 1):
            gram[k, m] = dot(products[k], products[m])
            gram[m, k] = gram[k, m]
    left[:] = 0
    right[:] = 0
    values[:] = 0
    if not np.isfinite(gram).all():
        return np.nan
    squares, vectors = np.linalg.eigh(gram)
    largest = math.sqrt(max(squares[count - 1], 0.0))
    for k in range(min(count, values.shape[0])):
        at = count - 1 - k
        length = math.sqrt(max(squares[at], 0.0))
        if k < left.shape[0]:
            _combined(basis, vectors[:, at].copy(), count, left[k])
        if k < right.shape[0] and length > 1e-6 * largest:
            _combined(products, vectors[:, at] / length, count, right[k])
            values[k] = length
    return largest


@compiled
def next_start(right, number, scale, start):  # type: ignore[no-untyped-def]
    """``start ← right + scale·noise``, uniform between −1 and 1, counted by ``number``.

    The noise is a hash of its place (splitmix64), so that it is the same in every process.
    """
    right, start = right.reshape(-1), start.reshape(-1)
    for j in range(right.shape[0]):
        z = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(j + 1) * np.uint64(
            0xD1B54A32D192ED03
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        unit = float(z >> np.uint64(11)) / 9007199254740992.0
        start[j] = right[j] + scale * (2.0 * unit - 1.0)
