"""Constraints: which features of a row may change and how far, as the user says it, checked."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from driftree.explain.counterfactual.sparse_space import SparseSpace
from driftree.explain.text import did_you_mean
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.validation import plain
from driftree.learn.words import list_names

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from numpy.typing import NDArray

    from driftree.learn.encoding import Encoder


@dataclass(slots=True)
class Constraints:
    """What the user allows, by feature.

    Attributes
    ----------
    low, high : array of shape (features,)
        The interval of each feature.
    values : dict
        Where it has levels and not all are allowed: the codes that are.
    other_level : dict
        The level meant by the code that all later levels share.
    fixed, ranged : list of int
        The features that were named.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    values: dict[int, set[float]] = field(default_factory=dict)
    other_level: dict[int, Hashable] = field(default_factory=dict)
    fixed: list[int] = field(default_factory=list)
    ranged: list[int] = field(default_factory=list)

    @classmethod
    def open(cls, n_features: int) -> Self:
        """Return constraints that allow everything."""
        return cls(np.full(n_features, -math.inf), np.full(n_features, math.inf))

    def allow(self, values: NDArray[np.float64]) -> bool:
        """Tell whether a row lies within; a missing value always does."""
        outside = (values < self.low) | (values > self.high)
        return not outside.any() and all(
            math.isnan(values[j]) or values[j] in allowed for j, allowed in self.values.items()
        )

    def hold(self, j: int, values: NDArray[np.float64]) -> None:
        """Let a number stay what it is."""
        if not math.isnan(values[j]):
            self.low[j], self.high[j] = max(self.low[j], values[j]), min(self.high[j], values[j])

    def fix(self, j: int, values: NDArray[np.float64], *, is_category: bool) -> None:
        """Let a feature stay what it is."""
        if is_category:
            own = {float(values[j])}
            self.values[j] = own & self.values.get(j, own)
        else:
            self.hold(j, values)

    def only(
        self,
        places: Collection[int],
        encoder: Encoder | SparseSpace,
        values: NDArray[np.float64],
    ) -> Constraints:
        """Return the same, in which only some features may change."""
        limits = deepcopy(self)
        for j in range(len(values)):
            if j not in places and not math.isnan(values[j]):
                limits.fix(j, values, is_category=_is_category(encoder, j))
        return limits

    def leaves_room(self, j: int) -> bool:
        """Tell whether a feature may change at all."""
        return bool(self.low[j] < self.high[j]) and len(self.values.get(j, "ab")) > 1

    def say(self, names: list[str]) -> str:
        """Say which features are limited; nothing if none is."""
        parts = []
        for places, one, several in (
            (self.fixed, "is fixed", "are fixed"),
            (self.ranged, "has a range", "have ranges"),
        ):
            if places:
                listed = ", ".join(names[j] for j in places[:8])
                rest = ", ..." if len(places) > 8 else ""
                parts.append(f"{listed}{rest} {one if len(places) == 1 else several}")
        return " and ".join(parts)


def read_constraints(
    encoder: Encoder | SparseSpace,
    x: Mapping[Hashable, Any],
    values: NDArray[np.float64],
    fixed: Iterable[Hashable],
    ranges: Mapping[Hashable, Any] | None,
) -> Constraints:
    """Read what the user allows.

    Parameters
    ----------
    encoder : Encoder or SparseSpace
        Who knows the features.
    x, values : dict and array of shape (features,)
        The row as it came, and as the encoder reads it.
    fixed, ranges
        As for `counterfactual`.
    """
    if isinstance(fixed, (str, bytes)) or not hasattr(fixed, "__iter__"):
        raise TypeError(f"fixed must be a list of feature names, got {fixed!r}: write [{fixed!r}]")
    if ranges is not None and not hasattr(ranges, "items"):
        raise TypeError(
            f"ranges must be a dict of feature names to (low, high) or lists of levels, got "
            f"{ranges!r}"
        )
    limits = Constraints.open(len(values))
    for name, allowed in ({} if ranges is None else ranges).items():
        j = _find(encoder, name, "ranges")
        limits.ranged.append(j)
        if _is_category(encoder, j):
            own = x.get(encoder.feature_names[j])
            limits.values[j] = _codes(encoder, limits, j, allowed, (own, float(values[j])))
        else:
            limits.low[j], limits.high[j] = _interval(name, allowed)
    for name in fixed:
        if isinstance(encoder, SparseSpace) and is_hashable(name) and encoder.is_elsewhere(name):
            continue
        j = _find(encoder, name, "fixed")
        limits.fixed.append(j)
        limits.fix(j, values, is_category=_is_category(encoder, j))
    return limits


def is_hashable(name: object) -> bool:
    """Tell whether something can be a name or a label at all: a list cannot."""
    try:
        hash(name)
    except TypeError:
        return False
    return True


def _is_category(encoder: Encoder | SparseSpace, j: int) -> bool:
    is_known = j < encoder.engine.n_features
    return encoder.levels[j] is not None or (is_known and bool(encoder.engine.is_categorical[j]))


def _find(encoder: Encoder | SparseSpace, name: Hashable, what: str) -> int:
    """Return the place of a feature, by its name or the text of it."""
    places = {str(known): j for known, j in encoder.names.items()} | encoder.names
    if is_hashable(name) and name in places:
        return places[name]
    raise ValueError(
        f"{what} names {name!r}{did_you_mean(name, encoder.names)}, but the features are "
        f"{list_names(encoder.feature_names)}"
    )


def _interval(name: Hashable, allowed: Any) -> tuple[float, float]:
    wrong = f"ranges[{name!r}] must be (low, high) of a number, None where open, got {allowed!r}"
    try:
        low, high = allowed
        low = -math.inf if low is None else float(low)
        high = math.inf if high is None else float(high)
    except (TypeError, ValueError):
        raise ValueError(wrong) from None
    if not low <= high or low == math.inf or high == -math.inf:
        raise ValueError(f"{wrong}: nothing lies between them")
    return low, high


def _codes(
    encoder: Encoder | SparseSpace,
    limits: Constraints,
    j: int,
    allowed: Any,
    own: tuple[Any, float],
) -> set[float]:
    """Return the codes of the levels that are allowed; `own` is the row's level and its code."""
    name, known = encoder.feature_names[j], encoder.levels[j]
    own_level, own_code = own
    if isinstance(allowed, (str, bytes)) or not hasattr(allowed, "__iter__"):
        raise TypeError(f"ranges[{name!r}] must be a list of levels, got {allowed!r}")
    levels = list(map(plain, allowed))
    if not levels:
        raise ValueError(f"ranges[{name!r}] is empty: list the levels that {name!r} may have")
    if known is None:  # paper's setting: numbers that only the splits treat as categories
        try:
            return set(map(float, levels))
        except (TypeError, ValueError):
            raise ValueError(
                f"ranges[{name!r}] must be a list of numbers, got {allowed!r}"
            ) from None
    codes = set()
    for level in levels:
        if level in known:
            codes.add(float(known[level]))
        elif level == own_level:
            codes.add(own_code)
        elif len(known) < MAX_LEVELS:
            raise ValueError(
                f"ranges[{name!r}] has the level {level!r}{did_you_mean(level, known)}, but those "
                f"learnt are {list_names(known)}"
            )
        elif own_code != MAX_LEVELS:  # else it could not be told from the level in x
            codes.add(float(MAX_LEVELS))
            limits.other_level.setdefault(j, level)
    return codes
