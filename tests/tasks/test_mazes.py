"""Mazes: the targets are right, the seed decides, and held-out mazes are not trained on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csgraph, lil_matrix

from toreqprop.errors import InvalidInputError
from toreqprop.tasks.mazes import MARK, MAZE_TASKS, WALL, Mazes, distances, mazes


def shortest(image: np.ndarray) -> np.ndarray:
    """Distances of open cells from the first mark by another's algorithm; infinite at walls."""
    side = image.shape[-1]
    open_cells = image[WALL] == 0
    graph = lil_matrix((side * side, side * side))
    for r, c in np.argwhere(open_cells):
        for other in ((r, c + 1), (r + 1, c)):
            if open_cells[other]:
                graph[r * side + c, other[0] * side + other[1]] = 1
    start = int(np.flatnonzero(image[MARK].ravel())[0])
    found = csgraph.shortest_path(graph.tocsr(), directed=False, unweighted=True, indices=start)
    return np.asarray(found).reshape(side, side)


@pytest.mark.parametrize("side", [9, 17])
def test_reachable_cells_are_those_with_a_way(side: int) -> None:
    found = mazes("maze-reach", side, 10, seed=1)
    for image, target in zip(found.x, found.y, strict=True):
        far = np.where(image[WALL] > 0, np.inf, shortest(image))
        assert np.array_equal(target == 1, np.isfinite(far))
        assert np.array_equal(distances(image), np.where(np.isfinite(far), far, -1))
        assert image[MARK].sum() == 1
    cut_off = found.open & (found.y == 0)
    assert cut_off.reshape(10, -1).any(1).all()  # every maze has a part that cannot be reached


@pytest.mark.parametrize("side", [9, 17])
def test_the_path_is_the_only_one(side: int) -> None:
    found = mazes("maze-path", side, 10, seed=1)
    for image, target in zip(found.x, found.y, strict=True):
        far = shortest(image)
        ends = np.argwhere(image[MARK] > 0)
        assert len(ends) == 2
        assert target.sum() == far[tuple(ends[1])] + 1
        assert all(target[tuple(end)] == 1 for end in ends)
        # Inside the path every cell has two neighbours on it: it neither branches nor ends.
        padded = np.pad(target, 1)
        near = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        inner = (target == 1) & (image[MARK] == 0)
        assert (near[inner] == 2).all()
        # A tree: one way between any two rooms, so one passage fewer than rooms.
        rooms = ((side - 1) // 2) ** 2
        assert (image[WALL] == 0).sum() == 2 * rooms - 1


@pytest.mark.parametrize("task", MAZE_TASKS)
def test_held_out_mazes_are_not_trained_on(task: str) -> None:
    held = mazes(task, 7, 20, seed=0)
    train = mazes(task, 7, 200, seed=1, without=[held])
    walls = [{image[WALL].tobytes() for image in part.x} for part in (held, train)]
    assert not walls[0] & walls[1]
    assert walls[0] & {image[WALL].tobytes() for image in mazes(task, 7, 200, seed=1).x}
    assert len({image.tobytes() for image in train.x}) == 200


@pytest.mark.parametrize("task", MAZE_TASKS)
def test_the_seed_decides(task: str) -> None:
    first, again, other = (mazes(task, 9, 5, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.x, again.x)
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.x, other.x)
    assert (first.x.dtype, first.y.dtype, len(first)) == (np.float32, np.int64, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("maze", 9, 1, 0), "maze-reach"),
        (("maze-path", 8, 1, 0), "odd"),
        (("maze-path", 3, 1, 0), "side"),
        (("maze-path", 9, 0, 0), "count"),
        (("maze-path", 9, 1, -1), "seed"),
        (("maze-path", 5, 50, 0), "hardly"),
    ],
)
def test_refused_in_a_sentence(arguments: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        mazes(*arguments)


def test_open_cells_are_no_walls() -> None:
    x = np.zeros((1, 2, 3, 3), np.float32)
    x[0, WALL, 0] = 1
    assert Mazes(x, np.zeros((1, 3, 3), np.int64)).open.sum() == 6
