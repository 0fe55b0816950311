"""Goals: the wanted prediction of a counterfactual, and which features may change how far.

Both are validated user input; a goal also has the demands on a leaf's model.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from driftree.explain.counterfactual.leaf_tasks import SparseSpace
from driftree.explain.explanation import told_threshold, zero_of
from driftree.explain.text import did_you_mean, one_line, say_threshold, write_number
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.events import ALL_DIGITS, format_number
from driftree.learn.imbalance import decide
from driftree.learn.validation import list_names, plain

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from numpy.typing import NDArray

    from driftree.explain.counterfactual.solver import Doubles
    from driftree.learn.columns import Batch
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree

    Demands = tuple[Doubles, Doubles]  # rows of weights and constants, whose sum must be 0 or more


@dataclass(slots=True)
class Constraints:
    """What the user allows, by feature.

    Attributes
    ----------
    low, high : array of shape (features,)
        The interval of each feature.
    values : dict
        For a feature with levels, not all allowed: the allowed codes.
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
        """Return whether a row is within; missing values always are."""
        outside = (values < self.low) | (values > self.high)
        return not outside.any() and all(
            math.isnan(values[j]) or values[j] in allowed for j, allowed in self.values.items()
        )

    def hold(self, j: int, values: NDArray[np.float64]) -> None:
        """Keep a number unchanged."""
        if not math.isnan(values[j]):
            self.low[j], self.high[j] = max(self.low[j], values[j]), min(self.high[j], values[j])

    def fix(self, j: int, values: NDArray[np.float64], *, is_category: bool) -> None:
        """Keep a feature unchanged."""
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
        """Return the same constraints, but only some features may change."""
        limits = deepcopy(self)
        for j in range(len(values)):
            if j not in places and not math.isnan(values[j]):
                limits.fix(j, values, is_category=_is_category(encoder, j))
        return limits

    def seen(self, encoder: Encoder | SparseSpace, values: NDArray[np.float64]) -> Constraints:
        """Return the same constraints, but numbers without a range stay within the values seen."""
        limits = deepcopy(self)
        if isinstance(encoder, SparseSpace):  # added ones have their usual value
            return limits
        engine = encoder.engine
        for j in np.flatnonzero(engine.scale_weight > 0).tolist():
            if j not in self.ranged and not _is_category(encoder, j):
                ends = [engine.scale_low[j], engine.scale_high[j], values[j]]
                limits.low[j] = max(self.low[j], np.nanmin(ends))
                limits.high[j] = min(self.high[j], np.nanmax(ends))
        return limits

    def leaves_room(self, j: int) -> bool:
        """Return whether a feature may change at all."""
        return bool(self.low[j] < self.high[j]) and len(self.values.get(j, "ab")) > 1

    def say(self, names: list[str]) -> str:
        """Describe which features are limited; empty if none is."""
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
        Has the names of the features.
    x, values : dict and array of shape (features,)
        The row as given, and as the encoder reads it.
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
    """Return whether something can be a name or a label at all: a list cannot."""
    try:
        hash(name)
    except TypeError:
        return False
    return True


def _is_category(encoder: Encoder | SparseSpace, j: int) -> bool:
    is_known = j < encoder.engine.n_features
    return encoder.levels[j] is not None or (is_known and bool(encoder.engine.is_categorical[j]))


def _find(encoder: Encoder | SparseSpace, name: Hashable, what: str) -> int:
    """Return the index of a feature, by its name or the text of it."""
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
        elif own_code != MAX_LEVELS:  # otherwise it would be the same as the level in x
            codes.add(float(MAX_LEVELS))
            limits.other_level.setdefault(j, level)
    return codes


# ---------------------------------------------------------------------- goals
@dataclass(frozen=True, slots=True)
class Wish:
    """The user's goal as given; see `Readable.counterfactual`."""

    target: Hashable = None
    below: float | None = None
    above: float | None = None
    between: Any = None
    probability: float | None = None

    def read(self, tree: Tree, batch: Batch) -> LabelGoal | NumberGoal:
        """Return the validated goal; `batch` is the original row."""
        if tree.engine.has_labels:
            for name in ("below", "above", "between"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is for regressors, but the model predicts labels: give the "
                        "wanted label as target"
                    )
            return _label_goal(tree, self.target, batch, self._least_probability())
        if self.probability is not None:
            raise ValueError(
                "probability is for classifiers, but the model predicts a number: give the wanted "
                "range, by below, above or between"
            )
        if self.target is not None:
            raise ValueError(
                "target is for classifiers, but the model predicts a number: give the wanted "
                f"range, by below, above or between; got target={self.target!r}"
            )
        return NumberGoal(tree, *self._ends())

    def _least_probability(self) -> float:
        """Return the least probability that is wanted, 0 if any will do."""
        given = self.probability
        if given is None:
            return 0.0
        if not 0 < given < 1:
            raise ValueError(f"probability must be between 0 and 1, such as 0.6, got {given!r}")
        return float(given)

    def _ends(self) -> tuple[float, float]:
        """Return the ends of the wanted range."""
        given = [name for name in ("below", "above", "between") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "give the wanted range, by one of below=200, above=100 or between=(100, 200); got "
                f"{' and '.join(given) or 'none of them'}"
            )
        low, high = -math.inf, math.inf
        try:
            if self.between is not None:
                low, high = map(float, self.between)
            elif self.below is not None:
                high = float(self.below)
            elif self.above is not None:
                low = float(self.above)
        except (TypeError, ValueError):
            low = math.nan
        if not low < high or low == math.inf or high == -math.inf:
            wrong = getattr(self, given[0])
            allowed = "two numbers, the lower first" if given == ["between"] else "a number"
            raise ValueError(f"{given[0]} must be {allowed}, got {wrong!r}")
        return low, high


def _label_goal(tree: Tree, target: Hashable, batch: Batch, probability: float) -> LabelGoal:
    labels = tree.target.labels
    code = None
    if target is not None:
        code = labels.get(plain(target)) if is_hashable(target) else None
        if code is None:
            known = tree.target.label_list
            raise ValueError(
                f"target must be a label that was learnt, got {target!r}"
                f"{did_you_mean(target, known)}: choose from {list_names(known)}, or None for any "
                "other than now"
            )
    present = _predicted(tree, tree.engine.probabilities(*batch.rows))
    if code is None and len(labels) == 2:
        code = 1 - present
    return LabelGoal(tree, present, code, probability)


def _predicted(tree: Tree, probabilities: Doubles) -> int:
    """Return the code predicted for the only row."""
    return int(decide(probabilities, tree.target.cut)[0])


@dataclass(frozen=True, slots=True)
class LabelGoal:
    """A label by its code, or None: any other than the present one."""

    tree: Tree
    present: int
    target: int | None
    probability: float = 0.0

    @property
    def doubt(self) -> str:
        """Why the demands are not equivalent to the goal; "" if they are.

        A probability of one of three or more labels is not a linear demand: the demands on each of
        the others are sufficient, but slightly too strict.
        """
        if self.probability == 0 or self.tree.engine.n_outputs == 1:
            return ""
        return "with more than two labels, the search for a probability is a little too strict"

    @property
    def impossible(self) -> str:
        """Why there can be no such row; "" if there can be one."""
        labels = self.tree.target.label_list
        if len(labels) > 1:
            return ""
        return f"{one_line(repr(labels[0]))} is the only label that was learnt"

    @property
    def note(self) -> str:
        """A sentence on the threshold; "" without one."""
        told = say_threshold(told_threshold(self.tree.target.cut, self.tree.target.label_list))
        return f"{told[2:]}. " if told else ""

    def agrees(self, batch: Batch) -> bool:
        """Return whether the prediction of a row is as wanted."""
        probabilities = self.tree.engine.probabilities(*batch.rows)
        code = _predicted(self.tree, probabilities)
        is_label = code != self.present if self.target is None else code == self.target
        return is_label and bool(probabilities[0, code] >= self.probability)

    def demands(self, leaf: int, weights: Doubles) -> list[Demands]:
        """Return what must not be negative in a leaf, for one goal or several.

        For any label except the present one, each other label is a goal of its own: where it first
        reaches the present one, the prediction changes, if not to it, then to a third one.
        """
        engine, target = self.tree.engine, self.target
        if engine.n_outputs == 1:
            sign = 1.0 if target == 1 else -1.0
            edge = self._edge(engine.floor(int(engine.model[leaf])))
            return [] if edge is None else [(sign * weights, np.array([-sign * edge]))]
        targets = [target] if target is not None else list(range(engine.n_outputs))
        if target is not None or self.probability:
            share = max(self.probability, 1 / engine.n_outputs)
            lead = max(0.0, math.log(share * (engine.n_outputs - 1) / (1 - share)))
            lead = lead if self.probability else 0.0
            n_others = engine.n_outputs - 1
            return [
                (weights[code] - np.delete(weights, code, axis=0), np.full(n_others, -lead))
                for code in targets
                if code != self.present or target is not None
            ]
        others = np.delete(weights, self.present, axis=0) - weights[self.present]
        return [(other[None], np.zeros(1)) for other in others]

    def _edge(self, floor: tuple[float, float]) -> float | None:
        """Return the least log-odds of a leaf's model at which the label is probable enough."""
        cut = self.tree.target.cut
        least = 0.5
        if cut is not None:
            least = cut.probability if cut.code == self.target else 1.0 - cut.probability
        if self.probability <= least == 0.5:
            return zero_of(floor)
        share = (max(self.probability, least) - floor[1 if self.target == 1 else 0]) / (
            1.0 - sum(floor)
        )
        if share >= 1:
            return None  # labels are too noisy there
        odds = math.log(max(share, 1e-12) / (1 - share))
        return odds if self.target == 1 else -odds

    def wanted(self) -> dict[str, Any]:
        """Return the text of the goal if there is no such row."""
        code = self.target
        return {"target": None if code is None else self.tree.target.label_list[code]}

    def reached(self, batch: Batch) -> dict[str, Any]:
        """Return the text of the prediction of a confirmed row."""
        probabilities = self.tree.engine.probabilities(*batch.rows)
        code = _predicted(self.tree, probabilities)
        label = self.tree.target.label_list[code]
        return {"target": label, "prediction": label, "probability": float(probabilities[0, code])}

    def say_none(self) -> str:
        """Return a text that the model never predicts the goal."""
        return f"the model gives {'any other' if self.target is None else 'this'} label to no row"


@dataclass(frozen=True, slots=True)
class NumberGoal:
    """A number between two others."""

    tree: Tree
    low: float
    high: float

    impossible = ""
    note = ""

    @property
    def doubt(self) -> str:
        """Why the demands are not equivalent to the goal; "" if they are.

        The prediction is the middle one of the sorted quantiles, the demands are on its own model.
        """
        if self.tree.engine.n_outputs == 1:
            return ""
        return "the search does not find rows in which predicted quantiles cross"

    def agrees(self, batch: Batch) -> bool:
        """Return whether the prediction of a row is as wanted."""
        return self.low < self._number(batch) < self.high

    def _number(self, batch: Batch) -> float:
        return float(self.tree.target.predict(*batch.rows)[0])

    def demands(self, leaf: int, weights: Doubles) -> list[Demands]:
        """Return what must not be negative in a leaf."""
        unit, middle = self.tree.target.unit, len(weights) // 2
        own, offsets = weights[middle], self.tree.engine.offsets
        offset = float(offsets[middle]) if len(offsets) else 0.0
        rows, constants = [], []
        for sign, end in ((1.0, self.low), (-1.0, self.high)):
            edge = unit.model_sum(end) - offset if math.isfinite(end) else end
            if edge == sign * math.inf:
                return []  # the range is empty
            if math.isfinite(edge):
                rows.append(sign * own)
                constants.append(-sign * edge)
        return [(np.array(rows).reshape(-1, len(own)), np.array(constants))]

    def wanted(self) -> dict[str, Any]:
        """Return the text of the goal if there is no such row."""
        return {"target": self._say(), "said": self._say()}

    def reached(self, batch: Batch) -> dict[str, Any]:
        """Return the text of the prediction of a confirmed row."""
        number = self._number(batch)
        return {"target": self._say(), "prediction": number, "said": self._say_number(number)}

    def _say_number(self, number: float) -> str:
        """Return a prediction with as many digits as show on which side of a limit it is."""
        text = write_number(number, self.tree.target.unit)
        digits = 1
        while not self.low < float(text.replace(",", "")) < self.high and digits <= ALL_DIGITS:
            text, digits = format_number(number, digits), digits + 1
        return text

    def _say(self) -> str:
        low, high = (format_number(end, 12) for end in (self.low, self.high))
        if math.isinf(self.low):
            return f"below {high}"
        return f"above {low}" if math.isinf(self.high) else f"between {low} and {high}"

    def say_none(self) -> str:
        """Return a text that the model never predicts the goal."""
        return "the model predicts such a number for no row"
