"""Explanation: the records that say why a row is predicted as it is: data, words, shap's form."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from driftree.explain.text import label_texts, one_line, percent, say_noise, say_unknown
from driftree.learn.events import format_number, join_path

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from driftree.learn.events import Condition

TWO_SIDED_95 = 1.96  # standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one row is predicted as it is; `str` says it in words.

    The log-odds of a row are the intercept plus the contributions of its features, exactly. They
    compare the row with an average one, both by the model of the row's leaf. The average row has
    every number at its mean over the stream (there a curve is 0), every category between the levels
    that the rule allows (at the mean of their weights, missing counted as a level if it ever was),
    and no number missing. (In the paper's setting categories are numbers to the simple models, and
    averaged like them.) What a feature decides on the way to the leaf is told by `path`, not by its
    contribution.

    The words are about the prediction: what speaks for it against the next most probable label. Of
    two labels `intercept` and `contributions` are always about `label`, so their signs are the
    opposite where the other one is predicted. With a noise floor, the words' log-odds are those
    without noise.

    Attributes
    ----------
    prediction : hashable
        The most probable label.
    probabilities : dict
        Probability of each label.
    label : hashable
        Two labels: the one whose log-odds are explained, `classes_[1]`. Otherwise None: with more
        labels each has its logit, with one the odds are those of a second that has not come.
    intercept : float, or dict of label to float
        Log-odds of the average row; with a noise floor counted, as in `decision_function`, from
        where both labels are equally probable. More than two labels: one logit per label.
    contributions : dict of name to float, or dict of label to such dicts
        What each feature adds to the log-odds, the strongest first.
    row : dict
        Value of each feature that the model knows, in the user's units; None is missing. In
        `explain`, a level that was never learnt is "any other level".
    leaf : int
        Id of the leaf, as `apply` gives it.
    path : tuple of Condition
        The rule: the conditions from the root to the leaf.
    rows : float
        Rows that the leaf has learnt.
    since_step, since_row : int or None
        Step and row at which the leaf became what it is; None where no history is kept.
    floor : tuple of float
        Noise floor: the share of each of two labels that is given at random.
    probabilities_without_floor : dict
        What the probabilities would be if no label were given at random.
    deviation : float or None
        Standard deviation of the log-odds (of each logit), from the model's Newton matrix; None in
        the paper's setting, which has none. It says how well the rows that the leaf remembers
        (`model_window`) pin down its model, as in a Bayesian logistic regression on them. A
        young model may be less certain than it says; in a long steady stream it is more certain.
        It takes the rule, the noise floor, and lines and curves with these knots for granted, and
        knows nothing of drift to come.
    intervals : dict of label to (float, float), or None
        Two labels: where the probability lies by 1.96 deviations of the log-odds to either side.
    unknown : tuple
        Names in the row that `explain_one` got which the model does not know, so they had no say.
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

    def __str__(self) -> str:
        return in_words(self)

    def to_shap(self, label: Hashable = None) -> Any:
        """Return a `shap.Explanation` of one row, for shap's plots (``driftree[shap]``).

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
        if label is not None and label not in self.probabilities:
            raise ValueError(f"label must be one of {list(self.probabilities)}, got {label!r}")
        if isinstance(self.intercept, dict):
            chosen = self.prediction if label is None else label
            return self.intercept[chosen], self.contributions[chosen]
        sign = 1.0 if label is None or label == self.label else -1.0  # the other label's
        return sign * self.intercept, {name: sign * v for name, v in self.contributions.items()}

    def zero_of(self, label: Hashable) -> float:
        """Return the log-odds without noise at which two labels are equally probable with it."""
        return zero_of(self.floor) if label == self.label else -zero_of(self.floor)


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """What holds for all rows of a leaf at the time of an explanation."""

    path: tuple[Condition, ...]
    rows: float
    floor: tuple[float, float]
    since_step: int | None
    since_row: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Explanations:
    """Why each of many rows is predicted as it is; `explanations[i]` is row i's `Explanation`.

    A slice, a boolean mask or a list of places gives the `Explanations` of those rows.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_features) or (n_rows, n_features, n_labels)
        Contributions to the log-odds of `classes_[1]`; more than two labels: to each one's logit.
    base_values : ndarray of shape (n_rows,) or (n_rows, n_labels)
        Intercepts: the average row's log-odds, by the model of the row's leaf.
    data : ndarray of shape (n_rows, n_features)
        The rows in the user's units: floats, or objects where there are categories.
    matrix : ndarray of shape (n_rows, n_features)
        The same as numbers: categories by their codes.
    leaves : ndarray of shape (n_rows,)
        Leaf of each row, as `apply` gives it.
    facts : dict of int to LeafFacts
        Rule, rows, noise floor and age of each of these leaves.
    probabilities : ndarray of shape (n_rows, n_labels)
        Probability of each label.
    deviations : ndarray of shape (n_rows,), or None
        Standard deviations of the log-odds; see `Explanation`.
    feature_names : list of str
        Names of the features.
    labels : list
        Labels, in the order of `classes_`.
    """

    values: NDArray[np.float64]
    base_values: NDArray[np.float64]
    data: NDArray[Any]
    matrix: NDArray[np.float64]
    leaves: NDArray[np.int32]
    facts: dict[int, LeafFacts]
    probabilities: NDArray[np.float64]
    deviations: NDArray[np.float64] | None
    feature_names: list[str]
    labels: list[Any]

    def __repr__(self) -> str:
        return f"<Explanations: {len(self)} rows, {len(self.feature_names)} features>"

    def __len__(self) -> int:
        return len(self.values)

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
        leaf = int(self.leaves[place])
        facts = self.facts[leaf]
        intercept, contributions = self._sums(place)
        probabilities = self._by_label(self.probabilities[place])
        without_floor, intervals = probabilities, None
        if len(self.labels) == 2:
            logit = float(self.base_values[place] + self.values[place].sum()) + zero_of(facts.floor)
            without_floor = self._by_label(_two_probabilities(logit, (0.0, 0.0)))
            if self.deviations is not None:
                margin = TWO_SIDED_95 * float(self.deviations[place])
                low = _two_probabilities(logit - margin, facts.floor)
                high = _two_probabilities(logit + margin, facts.floor)
                first, second = self.labels
                intervals = {first: (high[0], low[0]), second: (low[1], high[1])}
        values = self.data[place].tolist()
        return Explanation(
            prediction=self.labels[int(self.probabilities[place].argmax())],
            probabilities=probabilities,
            label=self.labels[1] if len(self.labels) == 2 else None,
            intercept=intercept,
            contributions=contributions,
            row={
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in zip(self.feature_names, values, strict=True)
            },
            leaf=leaf,
            path=facts.path,
            rows=facts.rows,
            since_step=facts.since_step,
            since_row=facts.since_row,
            floor=facts.floor,
            probabilities_without_floor=without_floor,
            deviation=None if self.deviations is None else float(self.deviations[place]),
            intervals=intervals,
        )

    def _some(self, rows: slice | NDArray[Any]) -> Explanations:
        leaves = self.leaves[rows]
        return replace(
            self,
            values=self.values[rows],
            base_values=self.base_values[rows],
            data=self.data[rows],
            matrix=self.matrix[rows],
            leaves=leaves,
            facts={leaf: self.facts[leaf] for leaf in np.unique(leaves).tolist()},
            probabilities=self.probabilities[rows],
            deviations=None if self.deviations is None else self.deviations[rows],
        )

    def _sums(self, place: int) -> tuple[float | dict[Hashable, float], dict[Any, Any]]:
        """Return a row's intercept and contributions, per label where there are more than two."""
        base, values = self.base_values[place], self.values[place]
        if values.ndim == 1:
            return float(base), self._strongest_first(values)
        each = {k: self._strongest_first(own) for k, own in zip(self.labels, values.T, strict=True)}
        return self._by_label(base), each

    def _strongest_first(self, values: NDArray[np.float64]) -> dict[str, float]:
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        return {self.feature_names[j]: float(values[j]) for j in order}

    def _by_label(self, numbers: Any) -> dict[Hashable, float]:
        return {k: float(number) for k, number in zip(self.labels, numbers, strict=True)}

    def to_shap(self) -> Any:
        """Return a `shap.Explanation` of all rows, for shap's plots (``driftree[shap]``).

        Categories are numbers in its `data`, by which shap colours, and names in `display_data`.
        """
        shown = self.data.astype(object)
        shown[np.isnan(self.matrix)] = "missing"
        return _import_shap().Explanation(
            values=self.values,
            base_values=self.base_values,
            data=self.matrix,
            display_data=shown,
            feature_names=self.feature_names,
            output_names=list(label_texts(self.labels).values()) if self.values.ndim == 3 else None,
        )


# ---------------------------------------------------------------------- probabilities
def zero_of(floor: tuple[float, float]) -> float:
    """Return the log-odds of a leaf's model at which both labels are equally probable."""
    even = min(max((0.5 - floor[1]) / (1.0 - sum(floor)), 1e-12), 1 - 1e-12)
    return math.log(even / (1 - even))


def _two_probabilities(logit: float, floor: tuple[float, float]) -> tuple[float, float]:
    """Return both labels' probabilities: the floor, plus what remains times the logistic curve."""
    clean = 1.0 - sum(floor)
    second = 0.5 * (1.0 + math.tanh(0.5 * logit))  # the logistic curve, without overflow
    return floor[0] + clean * (1.0 - second), floor[1] + clean * second


# ---------------------------------------------------------------------- shap
def _import_shap() -> Any:
    try:
        import shap
    except ImportError:
        raise ImportError(
            "to_shap needs the package shap, which is not installed: pip install 'driftree[shap]'"
        ) from None
    return shap


# ---------------------------------------------------------------------- in words
MOST_SHOWN = 6  # features


def in_words(why: Explanation) -> str:
    """Return the lines: prediction, rule, what speaks for and against it, certainty."""
    ranked = sorted(why.probabilities, key=lambda label: -why.probabilities[label])
    ranked.remove(why.prediction)
    names = label_texts(why.probabilities)
    lines = [_headline(why, ranked, names), _rule(why)]
    if ranked:
        lines += _for_and_against(why, ranked[0], names)
        lines += _certainty(why, names[why.prediction])
    else:
        lines.append("No other label was seen so far.")
    if why.unknown:
        absent = [name for name, value in why.row.items() if value is None]
        lines.append(say_unknown(why.unknown, absent))
    return "\n".join(lines)


def _headline(why: Explanation, others: list[Hashable], names: dict[Hashable, str]) -> str:
    shown = [f"{names[label]} {percent(why.probabilities[label])}" for label in others[:3]]
    if len(others) > 3:
        shown.append(f"{len(others) - 3} more")
    rest = f" ({', '.join(shown)})" if shown else ""
    likely = percent(why.probabilities[why.prediction])
    return f"Prediction: {names[why.prediction]}, {likely}{rest}"


def _rule(why: Explanation) -> str:
    facts = [f"leaf {why.leaf}", f"{why.rows:,.0f} rows learnt"]
    if why.since_row is not None:
        facts.append(f"stands since row {why.since_row:,}")
    return f"Rule: {join_path(why.path) or 'all rows'} ({', '.join(facts)})"


def _for_and_against(why: Explanation, second: Hashable, names: dict[Hashable, str]) -> list[str]:
    """Return a ledger of the log-odds of the prediction over the next most probable label."""
    intercept, contributions = _over(why, second)
    strongest = sorted(
        ((name, value) for name, value in contributions.items() if value != 0.0),
        key=lambda item: -abs(item[1]),
    )
    shown, rest = strongest[:MOST_SHOWN], strongest[MOST_SHOWN:]
    noise = " without noise" if any(why.floor) else ""
    of = f"Log-odds{noise} of {names[why.prediction]} over {names[second]}"
    lines = [f"{of}, compared with an average row:"]
    for name, value in shown:
        side = "for" if value > 0 else "against"
        lines.append(f"    {side:<7} {value:+8.2f}  {one_line(name)} {_value(why.row[name])}")
    if rest:
        total = sum(value for _, value in rest)
        lines.append(f"    weaker  {total:+8.2f}  {len(rest)} more, together")
    total = intercept + sum(contributions.values())
    lines.append(f"    An average row has {intercept:+.2f}, this one {total:+.2f}.")
    if why.label == second:
        lines.append(f"    (`.contributions` are about {names[second]}: their signs are opposite.)")
    if noise:
        without = percent(why.probabilities_without_floor[why.prediction])
        lines.append(
            f"Noise: {say_noise(why.floor)}. Log-odds of {total:+.2f} are {without} without noise, "
            f"{percent(why.probabilities[why.prediction])} with it."
        )
    return lines


def _over(why: Explanation, second: Hashable) -> tuple[float, dict[str, float]]:
    """Return intercept and contributions to the log-odds of the prediction over another label.

    They are those without noise: its floor only moves the place at which they are counted as 0.
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
    return ["Certainty: not known; the models of the paper's setting keep no measure of it."]


def _value(value: object) -> str:
    if value is None:
        return "is missing"
    return f"= {format_number(value) if isinstance(value, float) else one_line(repr(value))}"
