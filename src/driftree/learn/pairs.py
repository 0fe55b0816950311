"""Pairs: inputs that look at two features at once, for the trees of a forest.

A curve says what one feature does. What two do together only splits could say, one step at a time.
So each tree of a forest but the first has hinges of random pairs of numbers as further inputs,
max(0, a z_p + b z_q + c), where z is the number in deviations from its mean. The trees differ in
their pairs, which is what makes them a forest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import _TreeEngine


class Pairs:
    """The hinges of one tree, and where its features come from.

    Attributes
    ----------
    sources : array of int32
        By feature of the tree: the feature of the forest that it is, or -1 - i for hinge i.
    ends : array of int32, of shape (n_pairs, 2)
        The two features of the forest that a hinge looks at.
    slopes : array, of shape (n_pairs, 3)
        a, b and c of each.
    """

    def __init__(self) -> None:
        self.sources = np.empty(0, dtype=np.int32)
        self.ends = np.empty((0, 2), dtype=np.int32)
        self.slopes = np.empty((0, 3))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def n_shared(self) -> int:
        """How many features of the forest the tree knows."""
        return len(self.sources) - len(self)

    @property
    def places(self) -> NDArray[np.intp]:
        """By feature of the forest: which feature of the tree it is."""
        return np.flatnonzero(self.sources >= 0)

    def share(self, n_features: int) -> None:
        """Know so many features of the forest."""
        fresh = np.arange(self.n_shared, n_features, dtype=np.int32)
        self.sources = np.append(self.sources, fresh)

    def draw(self, numbers: Sequence[int], n_pairs: int, seed: int) -> NDArray[np.int32]:
        """Return the ends of hinges that are to come: random pairs of features that are numbers."""
        draw = np.random.default_rng([seed, len(self)])
        ends = [draw.choice(numbers, 2, replace=False) for _ in range(n_pairs)]
        return np.array(ends, dtype=np.int32).reshape(-1, 2)

    def add(self, ends: NDArray[np.int32], seed: int) -> None:
        """Have further hinges."""
        slopes = np.random.default_rng([seed, len(self), 1]).normal(size=(len(ends), 3))
        fresh = -1 - np.arange(len(self), len(self) + len(ends), dtype=np.int32)
        self.ends = np.concatenate([self.ends, ends])
        self.slopes = np.concatenate([self.slopes, slopes])
        self.sources = np.append(self.sources, fresh)

    # ------------------------------------------------------------------ keeping
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all by name."""
        return {
            "sources": self.sources.copy(),
            "ends": self.ends.reshape(-1).copy(),
            "slopes": self.slopes.reshape(-1).copy(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]], n_features: int) -> None:
        """Take over arrays; raise ValueError if they are not sound."""
        sources, ends, slopes = (arrays[name] for name in ("sources", "ends", "slopes"))
        n_pairs = len(slopes) // 3
        is_sound = (
            sources.dtype == ends.dtype == np.int32
            and slopes.dtype == np.float64
            and len(slopes) == 3 * n_pairs
            and len(ends) == 2 * n_pairs
            and np.array_equal(sources[sources >= 0], np.arange(n_features))
            and np.array_equal(-1 - sources[sources < 0], np.arange(n_pairs))
            and bool(((ends >= 0) & (ends < n_features)).all())
            and bool(np.isfinite(slopes).all())
        )
        if not is_sound:
            raise ValueError("the pairs of features are not sound")
        self.sources, self.ends = sources.copy(), ends.reshape(-1, 2).copy()
        self.slopes = slopes.reshape(-1, 3).copy()


def varies(engine: _TreeEngine) -> NDArray[np.bool_]:
    """Tell which numbers have varied so far, by more than rounding.

    A hinge of others would be the same for all rows, until it is another for all of them.
    """
    mean, factor = engine.scale_mean, engine.scale_factor
    has_both = (mean > 0) & (mean < 1)
    is_wide = (factor > 0) & (np.abs(mean) * factor < 1e9)
    return np.where(engine.scale_is_indicator != 0, has_both, is_wide)


def scale_of(engine: _TreeEngine) -> NDArray[np.float64]:
    """Return shift and factor of each feature: z = (x - shift) * factor, in deviations."""
    factor = np.where(engine.scale_is_indicator, 1.0, 2.0) * engine.scale_factor
    return np.column_stack([engine.scale_shift, factor]).reshape(-1)
