"""An evaluation with checkpoints: saved after a batch, and resumed as if never interrupted.

Rows that wait for their labels are not saved: they are read again.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.checkpoints import CheckpointWarning, check_learner
from driftree.evaluate.quality import Quality
from driftree.evaluate.records import WHOLE_NUMBERS, Record, figures_of, with_both_counts
from driftree.learn.storage import models
from driftree.streams.rows import take
from driftree.streams.stream import Stream
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from driftree.evaluate.checkpoints import Checkpoint, Checkpointer
    from driftree.evaluate.prequential import Evaluation
    from driftree.evaluate.quality import Confusion
    from driftree.streams.rows import Rows
    from driftree.streams.stream import Task


class ResumableEvaluation:
    """An evaluation of one learner, with its records and checkpoints.

    Parameters
    ----------
    evaluation : Evaluation
        A new one. If there is a checkpoint, it and its learner are restored from it.
    checkpointer : Checkpointer
        Where checkpoints are kept. If there is none yet, the first one is written at once, so that
        later starts can be compared with it.
    facts : mapping, optional
        Other facts that must not change between two starts, as text and numbers by name.

    Attributes
    ----------
    records : list of Record
        All so far, including those from before the last start.
    noted : object
        The last value given to `commit`.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        checkpointer: Checkpointer,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        if len(evaluation.learners) != 1:
            raise ValueError(
                f"checkpoints support one learner, not {', '.join(evaluation.learners)}: evaluate "
                "each separately"
            )
        self.evaluation = evaluation
        self.checkpointer = checkpointer
        self.records: list[Record] = []
        self.noted: Any = None
        ((self._name, self._model),) = evaluation.learners.items()
        check_learner(self._model)
        self._facts = {"driftree": __version__, **self._describe(), **(facts or {})}
        self._waiting: list[int] = []
        found = checkpointer.resume()
        if found is None:
            self.commit()
        else:
            self._go_on(found)

    def _describe(self) -> dict[str, Any]:
        evaluation = self.evaluation
        return {
            "name": self._name,
            "learner": type(self._model).__name__,
            **_parameters_of(self._model),
            "delay": evaluation.delay,
            "step_rows": evaluation.step_rows,
            "pretrain": evaluation.pretrain,
            "classes": repr(evaluation.classes),
            "text": repr(evaluation.text),
            **({} if evaluation.task == "classification" else {"task": evaluation.task}),
        }

    # ------------------------------------------------------------------ forwards
    def batches(self, stream: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Yield the batches of a stream that were not processed yet."""
        evaluation = self.evaluation
        n_before = evaluation.n_rows - sum(self._waiting)
        for X, y in _after(stream, n_before, is_end=not self._waiting):
            if self._waiting:
                self._wait_again(evaluation._read(X, y))
            else:
                yield X, y
        if self._waiting:
            raise ValueError(_not_the_same(evaluation.n_rows))

    def take(self, X: Any, y: Any, noted: Any = None) -> list[Record]:
        """Test, then train, on a batch; write a checkpoint if one is due."""
        records = self.evaluation.take(X, y)
        self.records += records
        if self.checkpointer.is_due(self.evaluation.n_rows):
            self.commit(noted)
        return records

    def commit(self, noted: Any = None) -> None:
        """Write a checkpoint; `noted` is restored with it."""
        evaluation = self.evaluation
        self.noted = noted
        metrics = {
            "facts": self._facts,
            "step": evaluation.step,
            **evaluation.grader.knowledge(),
            "quality": evaluation.quality[self._name].knowledge(),
            "n_features": evaluation._n_features,
            "names": getattr(evaluation._faces[self._name], "names", None),
            "waiting": [len(rows) for rows in evaluation._pending],
            "records": _columns(self.records, evaluation.task),
            "confusions": [record.confusion for record in self.records],
            "noted": noted,
        }
        self.checkpointer.commit(self._model, evaluation.n_rows, metrics)

    # ------------------------------------------------------------------ back
    def _go_on(self, found: Checkpoint) -> None:
        metrics = found.metrics
        if not isinstance(metrics, dict) or "facts" not in metrics:
            raise ValueError(
                f"{self.checkpointer.folder} holds checkpoints that are not of an evaluation: "
                "give another folder"
            )
        self._compare(metrics["facts"])
        _take_over(self._model, found.model)
        self.evaluation.skip_told()
        evaluation = self.evaluation
        evaluation.n_rows, evaluation.step = found.position, metrics["step"]
        evaluation.grader.restore(metrics)
        if "quality" in metrics:  # absent from older checkpoints
            evaluation.quality[self._name] = Quality.restored(metrics["quality"])
        evaluation._n_features = metrics["n_features"]
        face: Any = evaluation._faces[self._name]
        if metrics["names"] is not None:
            face.names = metrics["names"]
        self._waiting = metrics["waiting"]
        columns = metrics["records"]
        n_inner = (columns["n_nodes"] - getattr(self._model, "n_trees", 1)) / 2
        columns = with_both_counts(columns, np.maximum(0.0, n_inner))
        self.records = _records(self._name, columns, metrics.get("confusions"))
        self.noted = metrics["noted"]
        if self.records and any(evaluation.metrics.values()):
            warnings.warn(
                "River's metrics are not part of a checkpoint: those that were given do not count "
                f"the first {evaluation.n_rows:,} rows, but the records do",
                CheckpointWarning,
                stacklevel=5,
            )

    def _compare(self, then: dict[str, Any]) -> None:
        """Raise if the run differs; for another version, only warn."""
        now = self._facts
        then = {
            **_parameters_of(type(self._model)()),
            **then,
        }  # absent: the default
        changes = ", ".join(
            f"{name} was {then.get(name)!r}, is {now.get(name)!r}"
            for name in dict.fromkeys([*then, *now])
            if name != "driftree" and then.get(name) != now.get(name)
        )
        if changes:
            raise ValueError(
                f"{self.checkpointer.folder} holds checkpoints of another run ({changes}): resume "
                "with the same settings, or start over in another folder"
            )
        if then["driftree"] != now["driftree"]:
            warnings.warn(
                f"{self.checkpointer.folder} was started by driftree {then['driftree']} and is "
                f"resumed by {now['driftree']}: the results may differ from those of one version",
                CheckpointWarning,
                stacklevel=5,
            )

    def _wait_again(self, rows: Rows) -> None:
        """Queue the rows that wait for their labels, in the same parts as before."""
        evaluation, start = self.evaluation, 0
        while self._waiting and start + self._waiting[0] <= len(rows):
            stop = start + self._waiting.pop(0)
            evaluation._pending.append(rows[start:stop])
            evaluation._n_pending += stop - start
            start = stop
        if start != len(rows):
            raise ValueError(_not_the_same(evaluation.n_rows))


def _parameters_of(model: Any) -> dict[str, str]:
    told = models.pack(model)[0]["parameters"]
    return {f"{name} of the learner": repr(value) for name, value in told.items()}


def _take_over(model: Any, other: Any) -> None:
    """Copy the learnt state of a model into another one, which stays the same object."""
    for name in models.OWN_STATE:
        vars(model).pop(name, None)
    vars(model).update({name: vars(other)[name] for name in models.OWN_STATE & vars(other).keys()})


def _after(
    stream: Iterable[tuple[Any, Any]], n_rows: int, *, is_end: bool
) -> Iterator[tuple[Any, Any]]:
    """Yield the batches after the first rows of a stream, which are read or drawn again.

    `is_end` means that a batch must end there.
    """
    if isinstance(stream, Stream):
        if stream.n_rows is not None and stream.n_rows < n_rows:
            raise ValueError(_not_the_same(n_rows))
        yield from stream.batches(skip_rows=n_rows)
        return
    left = n_rows
    for X, y in stream:
        skipped = min(left, len(y))
        left -= skipped
        if 0 < skipped < len(y) and is_end:
            raise ValueError(_not_the_same(n_rows))
        if skipped < len(y):
            yield take((X, y), skipped, len(y)) if skipped else (X, y)
    if left:
        raise ValueError(_not_the_same(n_rows))


def _not_the_same(n_rows: int) -> str:
    return (
        f"the stream does not have the {n_rows:,} rows of the checkpoint, in the same batches: "
        "give the same stream from its beginning, or another folder"
    )


# ---------------------------------------------------------------------- records
def _columns(records: list[Record], task: Task) -> dict[str, NDArray[np.float64]]:
    """Return records as arrays; NaN is unknown."""
    return {
        name: np.array([getattr(record, name) for record in records], dtype=np.float64)
        for name in figures_of(task)
    }


def _records(
    learner: str,
    columns: Mapping[str, NDArray[np.float64]],
    confusions: list[Confusion | None] | None,
) -> list[Record]:
    """Return the records; older checkpoints have no confusion matrices."""
    cells: dict[str, list[Any]] = {
        name: [None if math.isnan(v) else int(v) for v in column.tolist()]
        if name in WHOLE_NUMBERS
        else column.tolist()
        for name, column in columns.items()
    }
    if confusions is not None:
        cells["confusion"] = confusions
    return [
        Record(learner=learner, **dict(zip(cells, row, strict=True)))
        for row in zip(*cells.values(), strict=True)
    ]
