"""Labels over time: the confusion matrix of each batch."""

from __future__ import annotations

import csv
import math
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.evaluate.quality import LabelQuality, find_labels
from driftree.explain.text import one_line
from driftree.learn.storage.atomic import whole_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from driftree.evaluate.records import Record

MOST_LABELS = 10  # that have a name in a record, the first ones; the others are counted together
MOST_BLOCKS = 100  # of batches, at most
OTHERS, NOTHING = "(others)", "(nothing)"

Confusion = dict[str, dict[str, int]]
"""Rows by true label, then by predicted label; absent entries are 0."""


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
        names.append(f"{text} #{place}" if text in names else text)
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
        return [_known(one) for one in find_labels(counts, names)]


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


def _known(label: LabelQuality) -> LabelQuality:
    """Return figures without those of labels counted together, which are unknown."""
    unknown = {"recall": math.nan, "precision": math.nan, "f1": math.nan}
    return label._replace(**unknown) if label.label == OTHERS else label


def _cell(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else round(value, 6)
