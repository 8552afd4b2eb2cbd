"""Mazes of any size, drawn at random: which cells can be reached, and which lie on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.tasks.dataset import check_seed

MAZE_TASKS = ("maze-reach", "maze-path")
WALL, MARK = 0, 1
"""Channels of an image: what is a wall, and where the start (and the goal) is."""


@dataclass(frozen=True)
class Mazes:
    """Images ``x`` (count, 2, side, side) of float32 and targets ``y`` (count, side, side).

    The first channel is one at walls, the second at the start and, for paths, the goal. A target is
    one where a cell can be reached from the start, or lies on the path from start to goal.
    """

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.x)

    @property
    def open(self) -> np.ndarray:
        """(count, side, side): the cells that are no walls."""
        return self.x[:, WALL] == 0


def mazes(task: str, side: int, count: int, seed: int, *, without: Sequence[Mazes] = ()) -> Mazes:
    """``count`` different mazes, none of which has the walls of one in ``without``.

    A maze is a spanning tree of rooms at odd coordinates, found by a random walk that backtracks
    and branches off. For "maze-reach" two of its passages are walled up again, so that a part of
    the rooms is cut off; there is one start. For "maze-path" start and goal are two rooms.

    Raises:
        InvalidInputError: an unknown task, a side that is even or below 5, or more mazes than
            there are.
    """
    checks.choice("task", task, MAZE_TASKS)
    if checks.whole_number("side", side, 5) % 2 == 0:
        raise InvalidInputError(f"side must be odd, got {side}. Typical: 9 to 65.")
    checks.whole_number("count", count, 1)
    check_seed(seed)
    rng = np.random.default_rng((seed, side, MAZE_TASKS.index(task)))
    shut = {walls.tobytes() for other in without for walls in _packed(other)}
    rooms = (side - 1) // 2
    images: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    misses = 0
    while len(images) < count:
        walls = _tree(side, rng)
        if task == "maze-reach":
            _wall_up(walls, rng)
        image, target = _marked(task, walls, rng.choice(rooms * rooms, 2, replace=False))
        key = image.tobytes()
        if key not in images and np.packbits(walls).tobytes() not in shut:
            images[key] = image, target
            continue
        misses += 1
        if misses > 100 * count:
            raise InvalidInputError(
                f"There are hardly {count} different mazes of side {side}: ask for fewer or make "
                "them larger."
            )
    x, y = zip(*images.values(), strict=True)
    return Mazes(np.stack(x), np.stack(y))


def _marked(task: str, walls: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Image and target of a maze with a start and a goal, given as numbers of rooms."""
    rooms = (len(walls) - 1) // 2
    start, goal = ((2 * int(r // rooms) + 1, 2 * int(r % rooms) + 1) for r in ends)
    image = np.zeros((2, *walls.shape), np.float32)
    image[WALL] = walls
    image[MARK][start] = 1
    distance = _flood(walls, start)
    if task == "maze-reach":
        return image, (distance >= 0).astype(np.int64)
    image[MARK][goal] = 1
    target = np.zeros(walls.shape, np.int64)
    target[_descend(distance, goal)] = 1
    return image, target


def distances(maze: np.ndarray) -> np.ndarray:
    """Steps from the start to every cell of an image (2, side, side); −1 where there is no way.

    Of two marks the first is the start.
    """
    row, column = np.argwhere(maze[MARK] > 0)[0]
    return _flood(maze[WALL] > 0, (int(row), int(column)))


def _packed(found: Mazes) -> list[np.ndarray]:
    return [np.packbits(walls > 0) for walls in found.x[:, WALL]]


def _tree(side: int, rng: np.random.Generator) -> np.ndarray:
    """Walls (side, side) of a maze with one way between any two rooms."""
    walls = np.ones((side, side), bool)
    rooms = (side - 1) // 2
    at = (2 * int(rng.integers(rooms)) + 1, 2 * int(rng.integers(rooms)) + 1)
    walls[at] = False
    trail = [at]
    while trail:
        turn, jump, place = rng.random(3)
        number = int(place * len(trail)) if jump < BRANCHING else len(trail) - 1
        r, c = trail[number]
        ways = [
            (dr, dc)
            for dr, dc in STEPS
            if 0 < r + 2 * dr < side and 0 < c + 2 * dc < side and walls[r + 2 * dr, c + 2 * dc]
        ]
        if not ways:
            trail.pop(number)
            continue
        dr, dc = ways[int(turn * len(ways))]
        walls[r + dr, c + dc] = walls[r + 2 * dr, c + 2 * dc] = False
        trail.append((r + 2 * dr, c + 2 * dc))
    return walls


def _wall_up(walls: np.ndarray, rng: np.random.Generator) -> None:
    """Close two passages between rooms."""
    rows, columns = np.nonzero(~walls)
    between = (rows + columns) % 2 == 1
    passages = np.stack([rows[between], columns[between]], 1)
    closed = rng.choice(passages, 2, replace=False)
    walls[closed[:, 0], closed[:, 1]] = True


def _flood(walls: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    distance = np.full(walls.shape, -1)
    distance[start] = 0
    front, steps = [start], 0
    while front:
        steps += 1
        reached = []
        for r, c in front:
            for dr, dc in STEPS:
                cell = (r + dr, c + dc)
                if not walls[cell] and distance[cell] < 0:
                    distance[cell] = steps
                    reached.append(cell)
        front = reached
    return distance


def _descend(distance: np.ndarray, goal: tuple[int, int]) -> tuple[list[int], list[int]]:
    """Rows and columns of the cells from the goal back to where the distance is zero."""
    cell, rows, columns = goal, [goal[0]], [goal[1]]
    while distance[cell] > 0:
        r, c = cell
        cell = next(
            (r + dr, c + dc) for dr, dc in STEPS if distance[r + dr, c + dc] == distance[r, c] - 1
        )
        rows.append(cell[0])
        columns.append(cell[1])
    return rows, columns


STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))
BRANCHING = 0.5
"""How often the walk goes on from any room it has seen: so small mazes too have crossings of every
kind, and large ones ways of a hundred steps and more."""
