"""Imbalance: class weights, and the decision threshold.

Both follow the stream: labels and predictions are counted over about as many rows as the evidence
window, without looking ahead.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from driftree.learn.constants import IMBALANCE
from driftree.learn.validation import list_names, shown

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

BALANCED = "balanced"
POSITIVE = 1  # which is also True
MOST_ROWS = 1e300  # counted in advance
GOALS = (
    '{"precision": 0.9}, {"recall": 0.8} or {"fp": 1, "fn": 20} (the costs of a false positive '
    'and a false negative), each with "positive", the positive label, unless that is 1 or True'
)


# ---------------------------------------------------------------------- weights of labels
def check_class_weight(class_weight: Any) -> str | dict[Hashable, float] | None:
    """Return validated class weights; a dict as a copy.

    Examples
    --------
    >>> check_class_weight({"fraud": 50})
    {'fraud': 50.0}
    >>> check_class_weight({"fraud": 0})
    Traceback (most recent call last):
    ValueError: class_weight must hold numbers above 0, got 0 for 'fraud': to leave rows out, give
    them the sample weight 0
    """
    if class_weight is None or (isinstance(class_weight, str) and class_weight == BALANCED):
        return class_weight
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be a dict of labels and weights, 'balanced' or None, got "
            f"{shown(class_weight)}"
        )
    found = {}
    for label, weight in class_weight.items():
        if not _is_number(weight) or not 0 < weight < math.inf:
            raise ValueError(
                f"class_weight must hold numbers above 0, got {shown(weight)} for {label!r}: to "
                "leave rows out, give them the sample weight 0"
            )
        found[label] = float(weight)
    return found


class LabelWeights:
    """The weights of labels: as given, or balanced by the labels so far.

    Their ratios are as requested. But one row with a weight of a hundred is not as much evidence as
    a hundred rows: if a label weighs more than `IMBALANCE.most`, all are scaled down.

    Parameters
    ----------
    class_weight : dict or "balanced"
        Checked.
    window : float
        Rows that the counts of labels remember.
    """

    def __init__(self, class_weight: str | dict[Hashable, float], window: float) -> None:
        self.stated = None if isinstance(class_weight, str) else class_weight
        self.scale = min(1.0, IMBALANCE.most / max(self.stated.values())) if self.stated else 1.0
        self.keep = 1.0 - 1.0 / window
        self.counts: list[float] = []
        """Rows of each label so far, by code, faded."""

    def check(self, labels: Sequence[Hashable], *, are_all: bool) -> None:
        """Raise if the labels in the dict do not match those of the data.

        Parameters
        ----------
        labels : sequence
            All that are known.
        are_all : bool
            Whether no others are expected; otherwise one in the dict may appear later.
        """
        stated = {} if self.stated is None else self.stated
        unknown = [label for label in stated if label not in labels]
        others = {str(label): label for label in labels if label not in stated}
        for label in unknown:
            if str(label) in others:
                meant = others[str(label)]
                raise ValueError(
                    f"class_weight has {label!r}, but the label is {meant!r}, of type "
                    f"{type(meant).__name__!r}: write it as it is in y"
                )
        if unknown and others and are_all:  # as in scikit-learn: it may be a misspelt one
            raise ValueError(
                f"class_weight has {list_names(unknown)}, but the labels are {list_names(labels)}"
            )

    def weigh(
        self, codes: NDArray[Any], labels: Sequence[Hashable], given: Doubles
    ) -> tuple[Doubles, list[float]]:
        """Return the weights of rows, and the counts after all of them; nothing changes.

        Parameters
        ----------
        codes : array of int
            The labels of the rows.
        labels : sequence
            All labels by code, including new ones.
        given : array
            The rows' own weights.
        """
        if self.stated is not None:
            own = np.array([self.stated.get(label, 1.0) for label in labels]) * self.scale
            return own[codes], self.counts
        counts, weights = self.counts, np.empty(len(codes))
        for i, (code, weight) in enumerate(zip(codes.tolist(), given.tolist(), strict=True)):
            counts = self._counted(counts, code, weight)
            weights[i] = balanced_weight(counts, code)
        return weights, counts

    def weigh_one(self, code: int, label: Hashable) -> tuple[float, list[float]]:
        """Return the weight of one row of a known label, and the counts after it."""
        if self.stated is not None:
            return self.stated.get(label, 1.0) * self.scale, self.counts
        counts = self._counted(self.counts, code, 1.0)
        return balanced_weight(counts, code), counts

    def _counted(self, counts: list[float], code: int, weight: float) -> list[float]:
        """Return the counts after one more row."""
        faded = [count * self.keep for count in counts]
        faded += [0.0] * (code + 1 - len(faded))
        faded[code] += weight
        return faded


def balanced_weight(counts: Sequence[float], code: int) -> float:
    """Return the weight of a label's rows: scikit-learn's n / (k n_label), within bounds.

    Labels with less than a row do not count; each other one counts as a few rows more than were
    seen, so that the first ones do not get huge weights.

    Examples
    --------
    >>> balanced_weight([600, 200], 0), balanced_weight([600, 200], 1)
    (0.6694214876033058, 1.975609756097561)
    >>> [round(balanced_weight([19900, 100], code), 3) for code in (0, 1)]  # in all, not 200 times
    [0.032, 6.0]
    """
    known = [count + IMBALANCE.prior_rows for count in counts if count >= 1.0]
    if len(known) < 2:
        return 1.0
    mean = sum(known) / len(known)
    scale = min(1.0, max(IMBALANCE.most * min(known) / mean, IMBALANCE.least_mean))
    return scale * mean / (max(counts[code], 1.0) + IMBALANCE.prior_rows)


# ---------------------------------------------------------------------- the threshold
class Cut(NamedTuple):
    """A decision threshold: a label's code, and the probability from which it is predicted."""

    code: int
    probability: float


def decide_one(probabilities: Mapping[Any, float], cut: Cut | None) -> Any:
    """Return the predicted label of one row.

    Examples
    --------
    >>> decide_one({"ok": 0.8, "fraud": 0.2}, Cut(1, 0.1))
    'fraud'
    """
    if cut is None or len(probabilities) < 2:
        return max(probabilities, key=probabilities.__getitem__)
    labels = [*probabilities]
    is_positive = probabilities[labels[cut.code]] >= cut.probability
    return labels[cut.code if is_positive else 1 - cut.code]


def decide(probabilities: Doubles, cut: Cut | None) -> NDArray[np.intp]:
    """Return the predicted code of each row: the most probable one, or by the threshold.

    Examples
    --------
    >>> decide(np.array([[0.8, 0.2], [0.95, 0.05]]), Cut(1, 0.1))
    array([1, 0])
    """
    if cut is None or probabilities.shape[1] < 2:
        return np.asarray(probabilities.argmax(axis=1))
    return np.where(probabilities[:, cut.code] >= cut.probability, cut.code, 1 - cut.code)


def check_threshold(threshold: Any) -> dict[str, Any] | None:
    """Return a validated copy of the parameter `threshold`.

    Examples
    --------
    >>> check_threshold({"precision": 0.9, "positive": "fraud"})
    {'precision': 0.9, 'positive': 'fraud'}
    >>> check_threshold({"recall": 80})
    Traceback (most recent call last):
    ValueError: the recall of a threshold must be a number between 0 and 1, got 80
    """
    if threshold is None:
        return None
    given = dict(threshold) if isinstance(threshold, Mapping) else {}
    asked = given.keys() - {"positive"}
    if asked not in ({"precision"}, {"recall"}, {"fp", "fn"}):
        raise ValueError(f"threshold must be {GOALS}, or None; got {shown(threshold)}")
    most, allowed = (1, "between 0 and 1") if len(asked) == 1 else (math.inf, "above 0")
    found: dict[str, Any] = {}
    for name in (name for name in given if name in asked):
        value = given[name]
        if not _is_number(value) or not 0 < value < most:
            raise ValueError(
                f"the {name} of a threshold must be a number {allowed}, got {shown(value)}"
            )
        found[name] = float(value)
    if "positive" in given:
        found["positive"] = given["positive"]
    return found


class Threshold:
    """The decision threshold of two labels, learnt online.

    Every row is predicted before it is learnt. Histograms of the log-odds, one per label, give the
    recent results of each possible threshold. The chosen one has the requested precision at the
    largest recall, the requested recall at the largest precision, or the least cost. If precision
    or recall turn out differently, as after a drift, the threshold aims higher or lower.

    Parameters
    ----------
    asked : dict
        Checked.
    window : float
        Rows that the histograms remember.
    """

    def __init__(self, asked: Mapping[str, Any], window: float) -> None:
        self.asked = asked
        self.positive: Hashable = asked.get("positive", POSITIVE)
        self.keep = 1.0 - 1.0 / window
        self.scores: Doubles = np.zeros((2, IMBALANCE.bins))
        """Rows of the other label and of the positive one by log-odds, times `scale` faded:"""
        self.scale = 1.0
        """the scale is discounted, which costs less than discounting each bin."""
        self.probability = self._first()
        self.aim = float(asked.get("precision", asked.get("recall", 0.0)))
        """The precision or recall that is aimed at, so that the requested one holds."""

    def _first(self) -> float:
        """Return the threshold for calibrated probabilities, used until enough rows were seen."""
        asked = self.asked
        if "fp" in asked:
            return float(asked["fp"] / (asked["fp"] + asked["fn"]))
        return float(asked.get("precision", 0.5))

    def check(self, labels: Sequence[Hashable]) -> None:
        """Raise if there can be no threshold for these labels."""
        if len(labels) > 2:
            raise ValueError(
                "Only binary classification is supported: a threshold is for two labels, but there "
                f"are {list_names(labels)}: use threshold=None, or merge them into two labels"
            )
        if len(labels) == 2 and self.positive not in labels:
            raise ValueError(
                f"threshold is about the label {self.positive!r}, but the labels are "
                f"{list_names(labels)}: give the positive label as "
                f"threshold={ {**self.asked, 'positive': labels[1]}!r}"
            )

    def note(self, probabilities: Doubles, is_positive: NDArray[np.bool_], w: Doubles) -> None:
        """Add predictions made before the labels were known, and choose again if necessary."""
        bins = np.searchsorted(EDGES, probabilities, side="right") - 1
        self._fade(len(bins))
        np.add.at(self.scores, (is_positive.astype(np.intp), bins), w / self.scale)
        is_predicted = probabilities >= self.probability
        matters = is_positive | is_predicted
        for right, found, weight in zip(
            is_positive[matters], is_predicted[matters], w[matters], strict=True
        ):
            self._move_aim(weight, is_positive=right, is_predicted=found)
        if matters.any():
            self._choose()

    def note_one(self, probability: float, *, is_positive: bool) -> None:
        """Do the same for one row, faster."""
        self._fade(1)
        self.scores[int(is_positive), bisect_right(EDGES, probability) - 1] += 1.0 / self.scale
        is_predicted = probability >= self.probability
        if is_positive or is_predicted:
            self._move_aim(1.0, is_positive=is_positive, is_predicted=is_predicted)
            self._choose()

    def _fade(self, n_rows: int) -> None:
        self.scale *= self.keep**n_rows
        if self.scale < IMBALANCE.least_scale:
            self.scores *= self.scale
            self.scale = 1.0

    def _move_aim(self, weight: float, *, is_positive: bool, is_predicted: bool) -> None:
        """Aim higher after a mistake, lower after a success, so that the requested rate holds."""
        if "recall" in self.asked and is_positive:
            aim, is_right, most = self.asked["recall"], is_predicted, 1.0
            step = IMBALANCE.recall_step
        elif "precision" in self.asked and is_predicted:
            aim, is_right = self.asked["precision"], is_positive
            most, step = (1.0 + aim) / 2, IMBALANCE.precision_step
        else:
            return
        moved = self.aim + step * float(weight) * (aim - float(is_right))
        self.aim = min(max(moved, aim / 2), most)

    def _choose(self) -> None:
        """Choose by the results that each threshold would have had."""
        scores = self.scores * self.scale
        if scores.sum(axis=1).min() < IMBALANCE.least_rows:
            return
        wrong, right = scores[:, ::-1].cumsum(axis=1)[:, ::-1]  # at each threshold and above
        asked = self.asked
        if "fp" in asked:
            best = int(np.argmin(asked["fp"] * wrong + asked["fn"] * (right[0] - right)))
        elif "recall" in asked:
            best = int(np.flatnonzero(right >= self.aim * right[0])[-1])
        else:
            promised = IMBALANCE.promised_rows
            precision = (right + promised * _EDGES) / (right + wrong + promised)
            enough = np.flatnonzero(precision >= self.aim)
            best = int(enough[0]) if len(enough) else int(precision.argmax())
        self.probability = EDGES[best]


def _edges(n: int, step: float) -> list[float]:
    """Return the lower ends of the bins, as probabilities; the first bin is open below."""
    return [0.0] + [1.0 / (1.0 + math.exp((n / 2 - i) * step)) for i in range(1, n)]


EDGES = _edges(IMBALANCE.bins, IMBALANCE.step)
_EDGES = np.array(EDGES)


# ---------------------------------------------------------------------- both
class Imbalance:
    """Class weights and threshold of a target; one of them may be None.

    Parameters
    ----------
    parameters : MeasuredLabelParameters or PaperLabelParameters
        Checked.
    """

    def __init__(self, parameters: Any) -> None:
        window = getattr(parameters, "evidence_window", IMBALANCE.window)
        own, asked = parameters.class_weight, parameters.threshold
        self.weights = None if own is None else LabelWeights(own, window)
        self.threshold = None if asked is None else Threshold(asked, window)

    @classmethod
    def of(cls, parameters: Any) -> Self | None:
        """Create it from parameters; None if both are unset."""
        weights = getattr(parameters, "class_weight", None)
        asked = getattr(parameters, "threshold", None)
        return None if weights is None and asked is None else cls(parameters)

    def check(self, labels: Sequence[Hashable], *, are_all: bool) -> None:
        """Raise if these labels do not match the parameters."""
        if self.weights is not None:
            self.weights.check(labels, are_all=are_all)
        if self.threshold is not None:
            self.threshold.check(labels)

    def cut(self, codes: Mapping[Hashable, int]) -> Cut | None:
        """Return the present threshold for these labels."""
        if self.threshold is None or len(codes) < 2:
            return None
        return Cut(codes[self.threshold.positive], self.threshold.probability)

    def weigh_one(self, code: int, label: Hashable) -> tuple[float, list[float] | None]:
        """Return the weight of one row of a known label, and the counts after it."""
        return (1.0, None) if self.weights is None else self.weights.weigh_one(code, label)

    def keep_counts(self, counts: list[float] | None) -> None:
        """Update the label counts with those of a call."""
        if self.weights is not None and counts is not None:
            self.weights.counts = counts

    def note(self, probabilities: Doubles, codes: NDArray[Any], w: Doubles, cut: Cut) -> None:
        """Update the threshold with predictions and labels."""
        assert self.threshold is not None
        own, is_positive = probabilities[:, cut.code], codes == cut.code
        counts = w > 0
        self.threshold.note(own[counts], is_positive[counts], w[counts])

    # ------------------------------------------------------------------ keeping
    def seen(self) -> dict[str, Doubles]:
        """Return a copy of the statistics, by name; empty at first."""
        found: dict[str, Doubles] = {}
        if self.weights is not None and self.weights.counts:
            found["counts"] = np.array(self.weights.counts)
        if self.threshold is not None and self.threshold.scores.any():
            found["scores"] = self.threshold.scores.flatten()
            own = self.threshold
            found["threshold"] = np.array([own.probability, own.aim, own.scale])
        return found

    def restore(self, seen: Mapping[str, NDArray[Any]], labels: Sequence[Hashable]) -> None:
        """Restore such a copy; raise if it is invalid."""
        self.check(labels, are_all=False)
        lengths: dict[str, range] = {}
        if self.weights is not None and self.weights.stated is None:
            lengths["counts"] = range(len(labels) + 1)
        if self.threshold is not None:
            size = self.threshold.scores.size
            lengths |= {"scores": range(size, size + 1), "threshold": range(2, 4)}
        for name, array in seen.items():
            is_sound = array.dtype == np.float64 and array.ndim == 1
            is_sound = is_sound and len(array) in lengths.get(name, ())
            most = 1.0 if name == "threshold" else MOST_ROWS
            is_sound = is_sound and bool(((array >= 0) & (array <= most)).all())
            if name == "threshold":
                is_sound = is_sound and bool((array[2:] >= IMBALANCE.least_scale).all())
            if not is_sound:
                raise ValueError(f"what was seen of the labels has wrong {name!r}")
        if self.weights is not None and "counts" in seen:
            self.weights.counts = seen["counts"].tolist()
        if self.threshold is not None and "scores" in seen and "threshold" in seen:
            self.threshold.scores = seen["scores"].reshape(2, -1).copy()
            probability, aim, *scale = seen["threshold"].tolist()
            self.threshold.probability, self.threshold.aim = probability, aim
            self.threshold.scale = scale[0] if scale else 1.0  # older ones had none


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
