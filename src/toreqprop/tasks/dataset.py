"""A data set split for training and testing, standardised by its training part alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from toreqprop import checks
from toreqprop.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Maps raw features to `(raw − mean) / scale`.

    `mean` and `scale` have shape (d,) when fitted per feature and () when one pair serves all
    features. `floor` is the smallest scale, in raw units, a feature is divided by: a pixel that is
    almost always zero would otherwise be blown up by its tiny deviation.
    """

    mean: np.ndarray
    scale: np.ndarray
    floor: float

    @classmethod
    def fit(cls, raw: np.ndarray, *, per_feature: bool, floor: float) -> Standardiser:
        """Measure mean and deviation of `raw` (n, d); constant features keep a scale of `floor`."""
        if not isinstance(raw, np.ndarray) or raw.dtype.kind not in "biuf" or raw.size == 0:
            raise InvalidInputError("raw must be an array of numbers with at least one sample.")
        checks.number("floor", floor, 0, above=True)
        axis = 0 if per_feature else None
        mean = raw.mean(axis=axis, dtype=np.float64)
        scale = np.maximum(raw.std(axis=axis, dtype=np.float64), floor)
        return cls(np.asarray(mean, np.float32), np.asarray(scale, np.float32), floor)

    def __call__(self, raw: np.ndarray) -> np.ndarray:
        return ((np.asarray(raw, np.float32) - self.mean) / self.scale).astype(np.float32)

    def invert(self, features: np.ndarray) -> np.ndarray:
        """The raw features of standardised ones, up to float32 rounding."""
        return np.asarray(features * self.scale + self.mean, np.float32)

    def refit(self, raw: np.ndarray) -> Standardiser:
        """The same kind of standardiser, measured on other samples."""
        return Standardiser.fit(raw, per_feature=self.mean.ndim == 1, floor=self.floor)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Standardised features (n, d) in float32 and labels (n,) in int64, for training and testing.

    `train_episode` and `test_episode` number the episode each row was recorded in (control tasks
    only). `checksums` are SHA-256 digests of what the set was made from, by name.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    checksums: dict[str, str]
    standardiser: Standardiser
    train_episode: np.ndarray | None = None
    test_episode: np.ndarray | None = None

    def __post_init__(self) -> None:
        checks.instance("name", self.name, str, "give it one word")
        checks.instance("checksums", self.checksums, dict, "use {} where there are none")
        for part in ("train", "test"):
            x, y = getattr(self, f"{part}_x"), getattr(self, f"{part}_y")
            for name, array in ((f"{part}_x", x), (f"{part}_y", y)):
                if not isinstance(array, np.ndarray) or array.ndim < 1:
                    raise InvalidInputError(f"{name} must be an array: use np.asarray({name}).")
            if len(x) != len(y):
                raise InvalidInputError(
                    f"{part}_x has {len(x)} samples and {part}_y has {len(y)}: give one label for "
                    "each sample."
                )
        checks.whole_number("classes", self.classes, 1)
        checks.instance("standardiser", self.standardiser, Standardiser, "use Standardiser.fit(x)")

    @property
    def features(self) -> int:
        """Number of features d."""
        return int(self.train_x.shape[1])

    @property
    def chance(self) -> float:
        """Test accuracy of always predicting the most frequent class of the test labels."""
        return float(np.bincount(self.test_y, minlength=self.classes).max() / len(self.test_y))

    @property
    def mean(self) -> np.ndarray:
        """Mean of the raw training features."""
        return self.standardiser.mean

    @property
    def scale(self) -> np.ndarray:
        """Floored standard deviation of the raw training features."""
        return self.standardiser.scale

    def normalise(self, raw: np.ndarray) -> np.ndarray:
        """Standardise raw features (..., d) the way the training data was."""
        return self.standardiser(raw)

    def validation(self, fraction: float, seed: int) -> Dataset:
        """Split the training part in two: one still to train on, and one to validate on as `test`.

        Hyper-parameters chosen on the result never see the test data. The split is by episode
        where there are episodes, stratified by class elsewhere, and the features are standardised
        again by the new training part alone.

        Raises:
            InvalidInputError: `fraction` is not between 0 and 1.
        """
        if not isinstance(fraction, Real) or not 0.0 < fraction < 1.0:
            raise InvalidInputError(
                f"fraction must be between 0 and 1, got {checks.shown(fraction)}. Typical values: "
                "0.1 to 0.3."
            )
        check_seed(seed)
        from sklearn.model_selection import GroupShuffleSplit, train_test_split

        rows = np.arange(len(self.train_y))
        if self.train_episode is None:
            kept, held = train_test_split(
                rows, test_size=fraction, random_state=seed, stratify=self.train_y
            )
        else:
            by_episode = GroupShuffleSplit(n_splits=1, test_size=fraction, random_state=seed)
            kept, held = next(by_episode.split(rows, groups=self.train_episode))
        raw = self.standardiser.invert(self.train_x)
        standardiser = self.standardiser.refit(raw[kept])
        episode = self.train_episode
        return replace(
            self,
            train_x=standardiser(raw[kept]),
            train_y=self.train_y[kept],
            test_x=standardiser(raw[held]),
            test_y=self.train_y[held],
            standardiser=standardiser,
            train_episode=None if episode is None else episode[kept],
            test_episode=None if episode is None else episode[held],
        )


def check_seed(seed: int) -> None:
    """Refuse what the generators behind the splits and episodes would refuse less clearly."""
    whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**32:
        raise InvalidInputError(
            f"seed must be an integer from 0 to 2**32 - 1, got {checks.shown(seed)}."
        )
