"""The stream in the report: labels or targets over time, and predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.quality import NOTHING, label_blocks, names_in
from driftree.evaluate.records import by_learner, columns
from driftree.show.report_leaves import round_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftree.evaluate.quality import LabelBlock
    from driftree.evaluate.records import Record

MAX_BLOCKS = 60  # over time


def over_stream(records: list[Record]) -> dict[str, Any]:
    """Return targets and predictions over time; None without records.

    Parameters
    ----------
    records : list of Record
        Results of an evaluation; the first learner in it is the model.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> told = over_stream(list(prequential("dmt", sea(3000))))
    >>> told["label_mix"]["names"], told["number_means"]
    (['1', '0'], None)
    """
    own = by_learner(records)[records[0].learner] if records else []
    return {"label_mix": _label_mix(own), "number_means": _number_means(own)}


def _label_mix(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the labels' names, and per block the confusion matrix."""
    blocks = label_blocks(records, MAX_BLOCKS)
    if not blocks:
        return None
    names = names_in(blocks)
    places = {name: place for place, name in enumerate([*names, NOTHING])}
    [whole] = label_blocks(records, 1)
    figures = columns(records)
    return {
        "names": names,
        "blocks": [
            [
                block.first,
                block.last,
                [
                    [places[label], places[other], count]
                    for label, said in block.confusion.items()
                    for other, count in said.items()
                ],
            ]
            for block in blocks
        ],
        "found": _found(whole),
        "majority": round_number(float(np.nanmean(figures["majority"]))),
        "accuracy": round_number(float(np.nanmean(figures["accuracy"]))),
        **{name: round_number(float(figures[name][-1])) for name in ("macro_f1", "auc", "ece")},
    }


def _found(block: LabelBlock) -> list[list[Any]]:
    return [[one.label, *map(round_number, one[1:])] for one in block.labels()]


def _number_means(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the means of targets and predictions in blocks of batches."""
    if not records or records[0].task == "classification":
        return None
    figures = columns(records)
    parts = np.array_split(np.arange(len(records)), min(len(records), MAX_BLOCKS))
    return {
        "rows": [int(figures["n_rows"][part[-1]]) for part in parts],
        "target": [_mean(figures["target_mean"][part]) for part in parts],
        "predicted": [_mean(figures["predicted_mean"][part]) for part in parts],
    }


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    with np.errstate(over="ignore", invalid="ignore"):
        return round_number(float(values.mean()))
