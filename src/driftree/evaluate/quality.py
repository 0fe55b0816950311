"""Quality by label: recall and precision, over all rows and over time; ranking, label shares."""

from __future__ import annotations

import csv
import math
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.evaluate.learners import title_of
from driftree.explain.text import one_line
from driftree.learn.storage.atomic import whole_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from driftree.evaluate.records import Record

MOST_ENTRIES = 200  # of label shares over time
LEVEL = 0.05  # significance level of differences
SCORE_BINS = 1000  # of the probability of the second of two labels, for the AUC
MOST_LABELS = 10  # that have a name in a record, the first ones; the others are counted together
MOST_BLOCKS = 100  # of batches, at most
OTHERS, NOTHING = "(others)", "(nothing)"

Confusion = dict[str, dict[str, int]]
"""Rows by true label, then by predicted label; absent entries are 0."""


class LabelQuality(NamedTuple):
    """Share, recall and precision of one label.

    Attributes
    ----------
    label : object
        The label.
    share : float
        Of the rows.
    recall : float
        Share of its rows that were predicted as such; NaN if it has no rows.
    precision : float
        Share of the rows predicted as this label that have it; NaN if none was predicted.
    f1 : float
        Harmonic mean of both; 0 if a label occurred but was never predicted.
    """

    label: Hashable
    share: float
    recall: float
    precision: float
    f1: float


class Quality:
    """Quality of the predictions of one learner over all tested rows.

    Attributes
    ----------
    confusion : ndarray of int
        Rows by true label and predicted label, in the order of `labels`; the last column holds rows
        without a prediction.
    mix : list of (int, ndarray)
        Rows of each label up to a row of the stream, since the previous entry.

    Examples
    --------
    >>> quality = Quality()
    >>> quality.add(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), np.array([0.9, 0.8, 0.4, 0.7]))
    >>> round(quality.majority, 2), round(quality.macro_f1, 2), quality.auc
    (0.75, 0.73, 1.0)
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.confusion = np.zeros((0, 1), dtype=np.int64)
        self.mix: list[tuple[int, NDArray[np.int64]]] = []
        self._block_rows = 1
        self._scores = np.zeros((2, SCORE_BINS), dtype=np.int64)
        self._has_scores = True

    # ------------------------------------------------------------------ rows
    def add(
        self,
        truth: NDArray[np.intp],
        predicted: NDArray[np.intp],
        probability: NDArray[np.float64] | None = None,
    ) -> None:
        """Add the rows of a batch, given as to `score`."""
        n_labels = max(int(max(truth.max(), predicted.max())) + 1, len(self.confusion))
        self._widen(n_labels)
        codes = truth * (n_labels + 1) + np.where(predicted < 0, n_labels, predicted)
        counts = np.bincount(codes, minlength=n_labels * (n_labels + 1))
        self.confusion += counts.reshape(n_labels, n_labels + 1)
        self.n_rows += len(truth)
        self._add_mix(np.bincount(truth, minlength=n_labels))
        self._has_scores = self._has_scores and probability is not None and n_labels <= 2
        if self._has_scores and probability is not None:
            of_second = np.where(truth == 1, probability, 1 - probability)
            places = np.clip((of_second * SCORE_BINS).astype(np.intp), 0, SCORE_BINS - 1)
            for label in (0, 1):
                self._scores[label] += np.bincount(places[truth == label], minlength=SCORE_BINS)

    def _widen(self, n_labels: int) -> None:
        known = len(self.confusion)
        if n_labels > known:
            wide = np.zeros((n_labels, n_labels + 1), dtype=np.int64)
            wide[:known, :known] = self.confusion[:, :known]
            wide[:known, n_labels] = self.confusion[:, known]
            self.confusion = wide

    def _add_mix(self, counts: NDArray[np.int64]) -> None:
        if self.mix and self.n_rows - self._end_before() <= self._block_rows:
            self.mix[-1] = (self.n_rows, _sum(self.mix[-1][1], counts))
        else:
            self.mix.append((self.n_rows, counts))
        if len(self.mix) > MOST_ENTRIES:
            pairs = zip(self.mix[::2], self.mix[1::2], strict=False)
            merged = [(last[0], _sum(first[1], last[1])) for first, last in pairs]
            self.mix = merged + self.mix[2 * len(merged) :]
            self._block_rows = 2 * max(self._block_rows, self.n_rows // MOST_ENTRIES)

    def _end_before(self) -> int:
        return self.mix[-2][0] if len(self.mix) > 1 else 0

    # ------------------------------------------------------------------ figures
    @property
    def majority(self) -> float:
        """Accuracy of always predicting the most frequent label."""
        return float(self.confusion.sum(axis=1).max()) / self.n_rows if self.n_rows else math.nan

    @property
    def most_frequent(self) -> int:
        """Code of the most frequent label."""
        return int(self.confusion.sum(axis=1).argmax())

    @property
    def accuracy(self) -> float:
        """Share of correct predictions."""
        return float(np.trace(self.confusion)) / self.n_rows if self.n_rows else math.nan

    def labels(self, names: Sequence[Hashable] | None = None) -> list[LabelQuality]:
        """Return share, recall and precision of each label."""
        return find_labels(self.confusion, range(len(self.confusion)) if names is None else names)

    @property
    def macro_f1(self) -> float:
        """Unweighted mean F1 of the labels that occurred."""
        hits, came, said = _counts(self.confusion)
        known = came > 0
        if not known.any():
            return math.nan
        return float((2 * hits[known] / (came[known] + said[known])).mean())

    @property
    def auc(self) -> float:
        """Area under the ROC curve of two labels, with probabilities rounded to 0.001; else NaN."""
        zeros, ones = self._scores
        if not self._has_scores or not zeros.sum() or not ones.sum():
            return math.nan
        below = np.cumsum(zeros) - zeros
        pairs = float((ones * (below + 0.5 * zeros)).sum())
        return pairs / (float(zeros.sum()) * float(ones.sum()))

    def to_dict(self, names: Sequence[Hashable] | None = None) -> dict[str, Any]:
        """Return the figures for JSON; None is unknown."""
        labels = self.labels(names)
        return {
            "accuracy_of_majority": _known(self.majority),
            "macro_f1": _known(self.macro_f1),
            "auc": _known(self.auc),
            "labels": [
                {name: _known(value) for name, value in one._asdict().items()} for one in labels
            ],
            "confusion": self.confusion.tolist(),
            "label_mix": [
                {"n_rows": n_rows, "counts": counts.tolist()} for n_rows, counts in self.mix
            ],
        }

    # ------------------------------------------------------------------ checkpoints
    def knowledge(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "confusion": self.confusion.tolist(),
            "mix": [[n_rows, counts.tolist()] for n_rows, counts in self.mix],
            "block_rows": self._block_rows,
            "scores": self._scores.tolist() if self._has_scores else None,
        }

    @classmethod
    def restored(cls, knowledge: Mapping[str, Any]) -> Quality:
        """Return one with a state from a checkpoint."""
        own = cls()
        rows = knowledge["confusion"]
        own.confusion = np.array(rows, dtype=np.int64).reshape(len(rows), len(rows) + 1)
        own.n_rows = int(own.confusion.sum())
        own.mix = [(n_rows, np.array(counts, np.int64)) for n_rows, counts in knowledge["mix"]]
        own._block_rows = knowledge["block_rows"]
        own._has_scores = knowledge["scores"] is not None
        if own._has_scores:
            own._scores = np.array(knowledge["scores"], dtype=np.int64)
        return own


def find_labels(confusion: NDArray[np.int64], names: Sequence[Hashable]) -> list[LabelQuality]:
    """Return share, recall and precision of each label, from a confusion matrix.

    Examples
    --------
    >>> [label.recall for label in find_labels(np.array([[3, 1, 0], [0, 0, 2]]), ["no", "yes"])]
    [0.75, 0.0]
    """
    n_rows = int(confusion.sum())
    return [
        LabelQuality(
            name,
            came / n_rows if n_rows else math.nan,
            hits / came if came else math.nan,
            hits / said if said else math.nan,
            2 * hits / (came + said) if came + said else math.nan,
        )
        for name, hits, came, said in zip(
            names, *(counts.tolist() for counts in _counts(confusion)), strict=False
        )
    ]


def _counts(confusion: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return per label the true positives, its rows, and the rows predicted as such."""
    n_labels = len(confusion)
    return np.diagonal(confusion), confusion.sum(axis=1), confusion[:, :n_labels].sum(axis=0)


def _sum(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add counts of labels; the second may have more labels."""
    total = second.copy()
    total[: len(first)] += first
    return total


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------------- two learners
class Paired(NamedTuple):
    """Two learners on the same batches: which one is better, and whether that is significant.

    Attributes
    ----------
    first, second : str
        Their names.
    n_better, n_worse : int
        Batches in which the first was better, and worse; ties count for neither.
    p_value : float
        P-value of the two-sided sign test, which treats batches as independent.
    """

    first: str
    second: str
    n_better: int
    n_worse: int
    p_value: float

    def __str__(self) -> str:
        n, first, second = self.n_better + self.n_worse, title_of(self.first), title_of(self.second)
        chance = "p < 0.0001" if self.p_value < 1e-4 else f"p = {self.p_value:.2g}"
        if self.p_value >= LEVEL:
            return (
                f"{first} and {second} do not differ significantly: better in {self.n_better} and "
                f"worse in {self.n_worse} of {n} batches (sign test, {chance})"
            )
        is_first = self.n_better > self.n_worse
        best, other = (first, second) if is_first else (second, first)
        most = max(self.n_better, self.n_worse)
        return f"{best} is better than {other}, in {most} of {n} batches (sign test, {chance})"


def compare_paired(
    first: tuple[str, Sequence[float]],
    second: tuple[str, Sequence[float]],
    *,
    higher_is_better: bool = True,
) -> Paired:
    """Compare two learners by a sign test over batches.

    Parameters
    ----------
    first, second : (str, sequence of float)
        Names, and the scores of the same batches.
    higher_is_better : bool, default=True
        True for accuracy, False for an error.

    Examples
    --------
    >>> print(compare_paired(("dmt", [0.9] * 12), ("efdt", [0.8] * 11 + [0.95])))
    DMT (driftree) is better than EFDT, in 11 of 12 batches (sign test, p = 0.0063)
    """
    (one, scores), (other, others) = first, second
    sign = 1 if higher_is_better else -1
    gaps = [sign * (a - b) for a, b in zip(scores, others, strict=True)]
    n_better, n_worse = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return Paired(one, other, n_better, n_worse, sign_test(n_better, n_worse))


def sign_test(n_better: int, n_worse: int) -> float:
    """Return the two-sided p-value of a sign test.

    Examples
    --------
    >>> sign_test(9, 1), sign_test(5, 5)
    (0.021484375, 1.0)
    """
    n, least = n_better + n_worse, min(n_better, n_worse)
    if n > 1000:  # where the normal approximation is accurate
        distance = max(abs(n_better - n_worse) - 1, 0) / math.sqrt(n)
        return math.erfc(distance / math.sqrt(2))
    tail = float(sum(math.comb(n, k) for k in range(least + 1)) / 2**n)
    return min(1.0, 2 * tail)


# ---------------------------------------------------------------------- labels over time
def name_labels(labels: Iterable[Hashable]) -> list[str]:
    """Return the names of labels in records; later labels do not change them.

    Examples
    --------
    >>> name_labels([1, "1", "(others)"])
    ['1', '1 #2', '(others) #3']
    """
    names = [OTHERS, NOTHING]
    for place, label in enumerate(islice(labels, MOST_LABELS), 1):
        text = one_line(str(label))
        while text in names:
            text += f" #{place}"
        names.append(text)
    return names[2:]


def count_confusion(
    truth: NDArray[np.intp], predicted: NDArray[np.intp], names: Sequence[str]
) -> Confusion:
    """Count rows by true and predicted label, of codes from 0; -1 is no prediction.

    Examples
    --------
    >>> count_confusion(np.array([0, 0, 1]), np.array([0, -1, 0]), ["no", "yes"])
    {'no': {'no': 1, '(nothing)': 1}, 'yes': {'no': 1}}
    """
    known = len(names)
    said = np.where(predicted < 0, known + 1, np.minimum(predicted, known))
    pairs, counts = np.unique([np.minimum(truth, known), said], axis=1, return_counts=True)
    named = [*names, OTHERS, NOTHING]
    confusion: Confusion = {}
    for (label, other), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        confusion.setdefault(named[label], {})[named[other]] = count
    return confusion


class LabelBlock(NamedTuple):
    """Consecutive batches of one learner.

    Attributes
    ----------
    first, last : int
        Rows of the stream before these batches, and at their end.
    confusion : dict of dict
        Rows by true label, then by predicted label.
    """

    first: int
    last: int
    confusion: Confusion

    def labels(self) -> list[LabelQuality]:
        """Return share, recall, precision and F1 of each label that occurred or was predicted."""
        names = names_in([self])
        places = {name: place for place, name in enumerate([*names, NOTHING])}
        counts = np.zeros((len(names), len(places)), dtype=np.int64)
        for label, said in self.confusion.items():
            for other, count in said.items():
                counts[places[label], places[other]] = count
        return [_without_others(one) for one in find_labels(counts, names)]


def names_in(blocks: Iterable[LabelBlock]) -> list[str]:
    """Return the labels of blocks in order of appearance; those counted together last."""
    found: dict[str, None] = {}
    for block in blocks:
        found |= dict.fromkeys(block.confusion)
        found |= dict.fromkeys(other for said in block.confusion.values() for other in said)
    names = [name for name in found if name not in (OTHERS, NOTHING)]
    return [*names, OTHERS] if OTHERS in found else names


def label_blocks(records: Sequence[Record], most: int = MOST_BLOCKS) -> list[LabelBlock]:
    """Group the batches of one learner into at most so many blocks.

    Records without labels, as those of regression or of older files, are left out.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> blocks = label_blocks(list(prequential("dmt", sea(5000))), most=2)
    >>> for block in blocks:
    ...     print(block.first, block.last, *(f"{one.recall:.2f}" for one in block.labels()))
    1000 3000 0.95 0.75
    3000 5000 0.93 0.79
    """
    size = max(1, math.ceil(len(records) / most))
    starts = [0, *(record.n_rows for record in records)]
    if records and records[0].confusion is not None:
        starts[0] = max(0, records[0].n_rows - _n_rows(records[0].confusion))
    blocks = []
    for place in range(0, len(records), size):
        known = [one.confusion for one in records[place : place + size] if one.confusion]
        if known:
            last = records[min(place + size, len(records)) - 1].n_rows
            blocks.append(LabelBlock(starts[place], last, _add(known)))
    return blocks


def _n_rows(confusion: Mapping[str, Mapping[str, int]]) -> int:
    return sum(count for said in confusion.values() for count in said.values())


def _add(parts: Sequence[Confusion]) -> Confusion:
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for label, said in part.items():
            total.setdefault(label, Counter()).update(said)
    return {label: dict(said) for label, said in total.items()}


def write_labels(path: Path, groups: Mapping[str, Sequence[Record]]) -> None:
    """Write share, recall and precision of each label over time, learner by learner.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> write_labels(path, {"dmt": list(prequential("dmt", sea(2000)))})
    >>> print(path.read_text().splitlines()[0])
    learner,first_row,last_row,rows,label,share,recall,precision,f1
    """
    with whole_text(path) as file:
        writer = csv.writer(file)
        writer.writerow(("learner", "first_row", "last_row", "rows", *LabelQuality._fields))
        for learner, records in groups.items():
            for block in label_blocks(records):
                span = (learner, block.first + 1, block.last)
                for one in block.labels():
                    n_rows = sum(block.confusion.get(str(one.label), {}).values())
                    writer.writerow((*span, n_rows, *map(_cell, one)))


def _without_others(label: LabelQuality) -> LabelQuality:
    """Return figures without those of labels counted together, which are unknown."""
    unknown = {"recall": math.nan, "precision": math.nan, "f1": math.nan}
    return label._replace(**unknown) if label.label == OTHERS else label


def _cell(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else round(value, 6)
