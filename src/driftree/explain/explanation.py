"""Explanation: the records that explain predictions, as data, in words, and for shap."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from driftree.explain.text import (
    label_texts,
    one_line,
    percent,
    say_noise,
    say_threshold,
    say_unknown,
    write_number,
)
from driftree.learn.events import ALL_DIGITS, DIGITS, format_number, join_path
from driftree.learn.imbalance import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from driftree.explain.sparse import Held
    from driftree.learn.events import Condition
    from driftree.learn.imbalance import Cut
    from driftree.learn.units import Unit

TWO_SIDED_95 = 1.96  # standard deviations
MOST_SHOWN = 6  # features
SIDES = ("for     ", "against ", "weaker  ")
NOT_KNOWN = "Certainty: not available in the paper's setting and with sparse features."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of one prediction; `str` shows it as text.

    The log-odds of a row are exactly the intercept plus the contributions of its features. They
    compare the row with an average one, both by the model of the row's leaf. The average row has
    every number at its mean over the stream (there a curve is 0), every category between the levels
    that the rule allows (at the mean of their weights, with missing as a level if it ever
    occurred), and no number missing. (In the paper's setting categories are numbers to the simple
    models, and averaged like these.) It holds no sparse features: each is 0 and adds nothing. The
    effect of a feature on the path to the leaf is given by `path`, not by its contribution.

    The text is about the prediction, compared with the next most probable label. With two labels,
    `intercept` and `contributions` always refer to `label`, so their signs are the opposite if the
    other one is predicted. With a noise floor, the log-odds in the text are those without noise.
    For a regressor, intercept and contributions are in the unit of the number, and their sum is the
    prediction.

    Attributes
    ----------
    prediction : hashable
        The most probable label; the predicted number.
    probabilities : dict
        Probability of each label; empty for regressors.
    label : hashable
        Two labels: the one whose log-odds are explained, `classes_[1]`. Otherwise None: with more
        labels each has its logit.
    intercept : float, or dict of label to float
        Log-odds, or the number, of the average row; with a noise floor relative to where both
        labels are equally probable, as in `decision_function`. More than two labels: one logit per
        label.
    contributions : dict of name to float, or dict of label to such dicts
        What each feature adds to the log-odds, or the number, the strongest first.
    row : dict
        Value of each feature that the model knows, in the user's units; None is missing. In
        `explain`, an unknown level is "any other level". Sparse features are included if the row
        holds them or the tree may split on them.
    leaf : int
        Id of the leaf, as `apply` gives it.
    path : tuple of Condition
        The rule: the conditions from the root to the leaf.
    rows : float
        Rows that the leaf has learnt.
    since_step, since_row : int or None
        Step and row since which the leaf exists with this path; None without a history.
    floor : tuple of float
        Noise floor: the share of each of two labels that is random.
    probabilities_without_floor : dict
        The probabilities without the noise floor.
    deviation : float or None
        Standard deviation of the log-odds (of each logit, of a number's mean), from the model's
        Newton matrix; None in the paper's setting, and for sparse features. It measures how well
        the rows that the leaf remembers (`model_window`) determine its model, as in a Bayesian
        logistic regression on them. It is too small for a young model, and too large in a long
        steady stream. It is conditional on the rule, the noise floor and the knots of curves, and
        does not account for future drift.
    intervals : dict of label to (float, float), or None
        Two labels: the interval of the probability, by 1.96 standard deviations of the log-odds.
        For a regressor, under "y": the interval of the mean (with ``loss="quantile"`` of the
        quantile) of such rows; single rows vary more.
    unknown : tuple
        Names in the row given to `explain_one` that the model does not know.
    error : float or None
        Regressors: the typical error of predictions in the leaf.
    unit : Unit or None
        Regressors: how the target is scaled in the models.
    threshold : tuple of label and float, or None
        The positive label and its decision threshold.
    spreads : dict of name to float
        Standard deviation of each number over the stream, which tells how many digits it needs.
    quantile : float or None
        Regressors with ``loss="quantile"``: which quantile is predicted.
    """

    prediction: Hashable
    probabilities: dict[Hashable, float]
    label: Hashable
    intercept: float | dict[Hashable, float]
    contributions: dict[Any, Any]
    row: dict[str, Any]
    leaf: int
    path: tuple[Condition, ...]
    rows: float
    since_step: int | None
    since_row: int | None
    floor: tuple[float, float]
    probabilities_without_floor: dict[Hashable, float]
    deviation: float | None
    intervals: dict[Hashable, tuple[float, float]] | None
    unknown: tuple[Hashable, ...] = ()
    error: float | None = None
    unit: Unit | None = None
    threshold: tuple[Hashable, float] | None = None
    spreads: dict[str, float] = field(default_factory=dict)
    quantile: float | None = None

    def __str__(self) -> str:
        return in_words(self)

    def _repr_html_(self) -> str:
        from driftree.explain.markup import explanation_html  # it imports what describes trees

        return explanation_html(self)

    def to_shap(self, label: Hashable = None) -> Any:
        """Return a `shap.Explanation` of one row, for shap's plots (extra ``shap``).

        Parameters
        ----------
        label : hashable, default=None
            Whose log-odds; None is `label` with two labels, the prediction with more.
        """
        shown = ["missing" if value is None else value for value in self.row.values()]
        intercept, contributions = self.sums_of(label)
        return _import_shap().Explanation(
            values=np.array([contributions[name] for name in self.row]),
            base_values=intercept,
            data=np.fromiter(shown, dtype=object, count=len(shown)),
            feature_names=list(self.row),
        )

    def sums_of(self, label: Hashable) -> tuple[float, dict[str, float]]:
        """Return intercept and contributions to the log-odds of a label; see `to_shap`."""
        if label is not None and self.unit is not None:
            raise ValueError(f"a number has no labels, so label must be None, got {label!r}")
        if label is not None and label not in self.probabilities:
            raise ValueError(f"label must be one of {list(self.probabilities)}, got {label!r}")
        if isinstance(self.intercept, dict):
            chosen = self.prediction if label is None else label
            return self.intercept[chosen], self.contributions[chosen]
        sign = 1.0 if label is None or label == self.label else -1.0  # the other label's
        return sign * self.intercept, {name: sign * v for name, v in self.contributions.items()}

    def zero_of(self, label: Hashable) -> float:
        """Return the log-odds without noise at which two labels are equally probable with noise."""
        return zero_of(self.floor) if label == self.label else -zero_of(self.floor)


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """What holds for all rows of a leaf at the time of an explanation."""

    path: tuple[Condition, ...]
    rows: float
    floor: tuple[float, float]
    since_step: int | None
    since_row: int | None
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Explanations:
    """The explanations of many rows; `explanations[i]` is the `Explanation` of row i.

    A slice, a boolean mask or a list of indices gives the `Explanations` of those rows. Sparse
    features that occur in the rows follow after the others. They are stored sparsely: `values`,
    `data` and `matrix` create dense arrays each time they are accessed, `explanations[i]` does not.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_features) or (n_rows, n_features, n_labels)
        Contributions to the log-odds of `classes_[1]`; more than two labels: to each logit; for a
        regressor: to the number.
    base_values : ndarray of shape (n_rows,) or (n_rows, n_labels)
        Intercepts: the average row's log-odds or number, by the model of the row's leaf.
    data : ndarray of shape (n_rows, n_features)
        The rows in the user's units: floats, or objects where there are categories.
    matrix : ndarray of shape (n_rows, n_features)
        The same as numbers: categories by their codes.
    leaves : ndarray of shape (n_rows,)
        Leaf of each row, as `apply` gives it.
    facts : dict of int to LeafFacts
        Rule, rows, noise floor, age and typical error of each of these leaves.
    probabilities : ndarray of shape (n_rows, n_labels)
        Probability of each label; empty for regressors.
    predictions : ndarray of shape (n_rows,), or None
        Regressors: the predicted numbers.
    deviations : ndarray of shape (n_rows,), or None
        Standard deviations of the log-odds or numbers; see `Explanation`.
    feature_names : list of str
        Names of the features.
    labels : list
        Labels, in the order of `classes_`.
    known_values, known_data, known_matrix : ndarray
        The same for features that are not sparse, or that the tree may split on.
    held : Held or None
        The other features that the rows hold.
    unit : Unit or None
        Regressors: how the target is scaled in the models.
    cut : Cut or None
        The threshold, if there is one.
    spreads : dict of name to float
        Standard deviations of the numbers over the stream.
    quantile : float or None
        Regressors with ``loss="quantile"``: which quantile is predicted.
    """

    known_values: NDArray[np.float64]
    base_values: NDArray[np.float64]
    known_data: NDArray[Any]
    known_matrix: NDArray[np.float64]
    leaves: NDArray[np.int32]
    facts: dict[int, LeafFacts]
    probabilities: NDArray[np.float64]
    deviations: NDArray[np.float64] | None
    feature_names: list[str]
    labels: list[Any]
    held: Held | None = None
    predictions: NDArray[np.float64] | None = None
    unit: Unit | None = None
    cut: Cut | None = None
    spreads: dict[str, float] = field(default_factory=dict)
    quantile: float | None = None

    @property
    def values(self) -> NDArray[np.float64]:
        """Contributions of all features."""
        if self.held is None:
            return self.known_values
        _, held = self.held.dense()
        return np.hstack([self.known_values, held if self._has_several else held[:, :, 0]])

    @property
    def data(self) -> NDArray[Any]:
        """The rows in the user's units."""
        if self.held is None:
            return self.known_data
        return np.hstack([self.known_data, self.held.data.toarray()])

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The rows as numbers."""
        return self.known_matrix if self.held is None else np.asarray(self.data, dtype=np.float64)

    @property
    def _has_several(self) -> bool:
        return self.known_values.ndim == 3

    def __repr__(self) -> str:
        return f"<Explanations: {len(self)} rows, {len(self.feature_names)} features>"

    def __len__(self) -> int:
        return len(self.known_values)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, i: int) -> Explanation: ...

    @overload
    def __getitem__(self, i: slice | Sequence[int] | NDArray[Any]) -> Explanations: ...

    def __getitem__(self, i: Any) -> Explanation | Explanations:
        if isinstance(i, slice) or np.ndim(i) == 1:
            return self._some(i if isinstance(i, slice) else np.asarray(i))
        place = operator.index(i)
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self)} rows, counted from 0, got {i}")
        place %= len(self)
        leaf = int(self.leaves[place])
        facts = self.facts[leaf]
        row, values = self._row(place)
        intercept, contributions = self._sums(place, list(row), values)
        probabilities = self._by_label(self.probabilities[place])
        without_floor, intervals = probabilities, None
        if self.unit is not None:
            intervals = self._interval_of_number(
                place, float(self.base_values[place] + values.sum())
            )
        if len(self.labels) == 2:
            logit = float(self.base_values[place] + values.sum()) + zero_of(facts.floor)
            without_floor = self._by_label(_two_probabilities(logit, (0.0, 0.0)))
            if self.deviations is not None:
                margin = TWO_SIDED_95 * float(self.deviations[place])
                low = _two_probabilities(logit - margin, facts.floor)
                high = _two_probabilities(logit + margin, facts.floor)
                first, second = self.labels
                intervals = {first: (high[0], low[0]), second: (low[1], high[1])}
        return Explanation(
            prediction=self._prediction(place),
            probabilities=probabilities,
            label=self.labels[1] if len(self.labels) == 2 else None,
            intercept=intercept,
            contributions=contributions,
            row=row,
            leaf=leaf,
            path=facts.path,
            rows=facts.rows,
            since_step=facts.since_step,
            since_row=facts.since_row,
            floor=facts.floor,
            probabilities_without_floor=without_floor,
            deviation=None if self.deviations is None else float(self.deviations[place]),
            intervals=intervals,
            error=facts.error,
            unit=self.unit,
            threshold=told_threshold(self.cut, self.labels),
            spreads=self.spreads,
            quantile=self.quantile,
        )

    def _prediction(self, place: int) -> Any:
        if self.predictions is not None:
            return float(self.predictions[place])
        return self.labels[int(decide(self.probabilities[[place]], self.cut)[0])]

    def _interval_of_number(
        self, place: int, read: float
    ) -> dict[Hashable, tuple[float, float]] | None:
        if self.unit is None or self.deviations is None:
            return None
        margin = TWO_SIDED_95 * float(self.deviations[place])
        return {"y": (self.unit.number(read - margin), self.unit.number(read + margin))}

    def _some(self, rows: slice | NDArray[Any]) -> Explanations:
        leaves = self.leaves[rows]
        return replace(
            self,
            known_values=self.known_values[rows],
            base_values=self.base_values[rows],
            known_data=self.known_data[rows],
            known_matrix=self.known_matrix[rows],
            held=None if self.held is None else self.held.some(rows),
            leaves=leaves,
            facts={leaf: self.facts[leaf] for leaf in np.unique(leaves).tolist()},
            probabilities=self.probabilities[rows],
            predictions=None if self.predictions is None else self.predictions[rows],
            deviations=None if self.deviations is None else self.deviations[rows],
        )

    def _row(self, place: int) -> tuple[dict[str, Any], NDArray[np.float64]]:
        """Return a row in the user's units, and the contribution of each feature."""
        own, values = self.known_data[place].tolist(), self.known_values[place]
        row = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(self.feature_names, own, strict=self.held is None)
        }
        if self.held is None:
            return row, values
        names, held, added = self.held.row(place)
        row |= zip(names, held.tolist(), strict=True)
        return row, np.concatenate([values, added if self._has_several else added[:, 0]])

    def _sums(
        self, place: int, names: list[str], values: NDArray[np.float64]
    ) -> tuple[float | dict[Hashable, float], dict[Any, Any]]:
        """Return a row's intercept and contributions, per label if there are more than two."""
        base = self.base_values[place]
        if values.ndim == 1:
            return float(base), _strongest_first(names, values)
        by_label = zip(self.labels, values.T, strict=True)
        return self._by_label(base), {k: _strongest_first(names, own) for k, own in by_label}

    def _by_label(self, numbers: Any) -> dict[Hashable, float]:
        return {k: float(number) for k, number in zip(self.labels, numbers, strict=True)}

    def to_shap(self) -> Any:
        """Return a `shap.Explanation` of all rows, for shap's plots (extra ``shap``).

        Categories are numbers in its `data`, by which shap colours, and names in `display_data`.
        """
        matrix, shown = self.matrix, self.data.astype(object)
        shown[np.isnan(matrix)] = "missing"
        return _import_shap().Explanation(
            values=self.values,
            base_values=self.base_values,
            data=matrix,
            display_data=shown,
            feature_names=self.feature_names,
            output_names=list(label_texts(self.labels).values()) if self.values.ndim == 3 else None,
        )


def _strongest_first(names: list[str], values: NDArray[np.float64]) -> dict[str, float]:
    order = np.argsort(-np.abs(values), kind="stable").tolist()
    return {names[j]: float(values[j]) for j in order}


# ---------------------------------------------------------------------- probabilities
def told_threshold(cut: Cut | None, labels: Sequence[Any]) -> tuple[Hashable, float] | None:
    """Return a threshold in the form of explanations."""
    return None if cut is None else (labels[cut.code], cut.probability)


def zero_of(floor: tuple[float, float]) -> float:
    """Return the log-odds of a leaf's model at which both labels are equally probable."""
    even = min(max((0.5 - floor[1]) / (1.0 - sum(floor)), 1e-12), 1 - 1e-12)
    return math.log(even / (1 - even))


def _two_probabilities(logit: float, floor: tuple[float, float]) -> tuple[float, float]:
    """Return both labels' probabilities: the floor, plus the rest times the logistic function."""
    clean = 1.0 - sum(floor)
    second = 0.5 * (1.0 + math.tanh(0.5 * logit))  # the logistic curve, without overflow
    return floor[0] + clean * (1.0 - second), floor[1] + clean * second


# ---------------------------------------------------------------------- in words
class FeatureLine(NamedTuple):
    """The contribution of a feature."""

    side: str
    """For the prediction or against it; empty for regressors."""
    number: str
    words: str
    value: float


class ExplanationLines(NamedTuple):
    """An explanation: lines, contributions, more lines."""

    head: list[str]
    entries: list[FeatureLine]
    tail: list[str]


def in_words(why: Explanation) -> str:
    """Return the lines: prediction, rule, contributions for and against it, certainty."""
    head, entries, tail = tell(why)
    width = max((len(entry.number) for entry in entries), default=0)
    ledger = [f"    {own.side}{own.number:>{width}}  {own.words}" for own in entries]
    return "\n".join([*head, *ledger, *tail])


def tell(why: Explanation) -> ExplanationLines:
    """Return the text, in parts."""
    told = _about_labels(why) if why.unit is None else _about_number(why, why.unit)
    if why.unknown:
        absent = [name for name, value in why.row.items() if value is None]
        told.tail.append(say_unknown(why.unknown, absent))
    return told


def _about_labels(why: Explanation) -> ExplanationLines:
    ranked = sorted(why.probabilities, key=lambda label: -why.probabilities[label])
    ranked.remove(why.prediction)
    names = label_texts(why.probabilities)
    head = [_headline(why, ranked, names), _rule(why)]
    if not ranked:
        return ExplanationLines(head, [], ["No other label was seen so far."])
    title, entries, tail = _for_and_against(why, ranked[0], names)
    return ExplanationLines(
        [*head, title], entries, [*tail, *_certainty(why, names[why.prediction])]
    )


def _about_number(why: Explanation, unit: Unit) -> ExplanationLines:
    """Return the text for a regressor, all numbers with the same decimals."""
    assert isinstance(why.prediction, float)
    assert isinstance(why.intercept, float)
    error = "" if why.error is None else f", with an error of about {write_number(why.error, unit)}"
    what = "the logarithm of the number" if unit.has_log_link else "the number"
    total = why.intercept + sum(why.contributions.values())
    head = [
        f"Prediction: {write_number(why.prediction, unit)}{error}",
        _rule(why),
        f"What makes {what}, compared with an average row:",
    ]
    tail = [
        f"    An average row has {say_sum(why.intercept, unit)}, this one {say_sum(total, unit)}.",
        *_certainty_of_number(why, unit),
    ]
    return ExplanationLines(
        head, _ledger(why.contributions, why, lambda value: say_part(value, unit)), tail
    )


def say_sum(value: float, unit: Unit) -> str:
    """Return a number as text; with a log link, its logarithm."""
    return f"{value:.3f}" if unit.has_log_link else write_number(value, unit)


def say_part(value: float, unit: Unit) -> str:
    """Return a contribution to a number as text; with a log link, to its logarithm."""
    return f"{value:+.3f}" if unit.has_log_link else write_number(value, unit, signed=True)


def _certainty_of_number(why: Explanation, unit: Unit) -> list[str]:
    if why.intervals is None:
        return [NOT_KNOWN]
    low, high = (write_number(end, unit) for end in why.intervals["y"])
    where = low if low == high else f"between {low} and {high}"
    what = "mean" if why.quantile is None else f"{why.quantile:g} quantile"
    return [f"Certainty: if this rule holds, the {what} of such rows is {where} (95% interval)."]


def _headline(why: Explanation, others: list[Hashable], names: dict[Hashable, str]) -> str:
    shown = [f"{names[label]} {percent(why.probabilities[label])}" for label in others[:3]]
    if len(others) > 3:
        shown.append(f"{len(others) - 3} more")
    rest = f" ({', '.join(shown)})" if shown else ""
    likely = percent(why.probabilities[why.prediction])
    return f"Prediction: {names[why.prediction]}, {likely}{rest}{say_threshold(why.threshold)}"


def _rule(why: Explanation) -> str:
    facts = [f"leaf {why.leaf}", f"{why.rows:,.0f} rows learnt"]
    if why.since_row is not None:
        facts.append(f"in place since row {why.since_row:,}")
    return f"Rule: {join_path(why.path) or 'all rows'} ({', '.join(facts)})"


def _for_and_against(
    why: Explanation, second: Hashable, names: dict[Hashable, str]
) -> tuple[str, list[FeatureLine], list[str]]:
    """Return the contributions to the log-odds of the prediction over the runner-up."""
    intercept, contributions = _over(why, second)
    noise = " without noise" if any(why.floor) else ""
    of = f"Log-odds{noise} of {names[why.prediction]} over {names[second]}"
    entries = _ledger(contributions, why, lambda value: f"{value:+8.2f}", sides=SIDES)
    total = intercept + sum(contributions.values())
    tail = [f"    An average row has {intercept:+.2f}, this one {total:+.2f}."]
    if why.label == second:
        tail.append(f"    (`.contributions` are about {names[second]}: their signs are opposite.)")
    if noise:
        without = percent(why.probabilities_without_floor[why.prediction])
        tail.append(
            f"Noise: {say_noise(why.floor)}. Log-odds of {total:+.2f} are {without} without noise, "
            f"{percent(why.probabilities[why.prediction])} with it."
        )
    return f"{of}, compared with an average row:", entries, tail


def _ledger(
    contributions: dict[str, float],
    why: Explanation,
    write: Callable[[float], str],
    sides: tuple[str, str, str] = ("", "", ""),
) -> list[FeatureLine]:
    """Return an entry per contributing feature, the strongest first, and the rest in one.

    `sides` are the words before positive, negative and weaker contributions.
    """
    strongest = sorted(
        ((name, value) for name, value in contributions.items() if value != 0.0),
        key=lambda item: -abs(item[1]),
    )
    shown, rest = strongest[:MOST_SHOWN], strongest[MOST_SHOWN:]
    entries = [
        FeatureLine(sides[value < 0], write(value), f"{one_line(name)} {_value(why, name)}", value)
        for name, value in shown
    ]
    if rest:
        total = sum(value for _, value in rest)
        entries.append(FeatureLine(sides[2], write(total), f"{len(rest)} more, together", total))
    return entries


def _over(why: Explanation, second: Hashable) -> tuple[float, dict[str, float]]:
    """Return intercept and contributions to the log-odds of the prediction over another label.

    They are without noise: the floor only shifts their zero.
    """
    intercept, mine = why.sums_of(why.prediction)
    if len(why.probabilities) == 2:
        return intercept + why.zero_of(why.prediction), mine
    second_intercept, other = why.sums_of(second)
    return intercept - second_intercept, {name: mine[name] - other[name] for name in why.row}


def _certainty(why: Explanation, name: str) -> list[str]:
    if why.intervals is not None:
        low, high = map(percent, why.intervals[why.prediction])
        where = low if low == high else f"between {low} and {high}"
        return [
            f"Certainty: if this rule holds, the probability of {name} is {where} (95% interval)."
        ]
    if why.deviation is not None:
        return [
            f"Certainty: the log-odds have a standard deviation of {why.deviation:.2f} per label."
        ]
    return [NOT_KNOWN]


def _value(why: Explanation, name: str) -> str:
    value = why.row[name]
    if value is None:
        return "is missing"
    return f"= {write_value(value, why.spreads.get(name))}"


def write_value(value: object, spread: float | None) -> str:
    """Format a value of a row: a number down to about a hundredth of its standard deviation.

    Examples
    --------
    >>> write_value(-122.41942, 0.03), write_value(51234.5, 2e4), write_value("van", None)
    ('-122.4194', '51,234', "'van'")
    """
    if not isinstance(value, float):
        return one_line(repr(value))
    digits = DIGITS
    if spread and value:
        finer = math.floor(math.log10(abs(value))) - math.floor(math.log10(spread))
        digits = min(max(digits, 3 + finer), ALL_DIGITS)
    return format_number(value, digits)


# ---------------------------------------------------------------------- shap
def _import_shap() -> Any:
    try:
        import shap
    except ImportError:
        raise ImportError(
            "to_shap needs the package shap, which is not installed: pip install shap"
        ) from None
    return shap
