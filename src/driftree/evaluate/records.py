"""Scores of a batch, and records of them, one per batch and learner: written, then summed up."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from driftree.learn.storage.atomic import whole_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import TextIO

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What was seen of one learner in one batch.

    Attributes
    ----------
    learner : str
        Its name.
    step : int
        Number of the batch, from 1; the batch that only trained, if there was one, is 0.
    n_rows : int
        Rows of the stream up to the end of this batch.
    f1, accuracy, kappa, log_loss : float
        See `Scores`.
    n_splits, n_parameters, n_nodes, depth : int or None
        Size after the batch was learnt, see `measure_size`; None where unknown.
    predict_seconds, learn_seconds : float
        Processor time of this thread.
    memory : int or None
        Bytes. Learners that do not count them themselves are measured at the steps 1, 2, 4, 8, ...
        only, since walking all their objects is slow; between these it is None.
    """

    learner: str
    step: int
    n_rows: int
    f1: float
    accuracy: float
    kappa: float
    log_loss: float
    n_splits: int | None
    n_parameters: int | None
    n_nodes: int | None
    depth: int | None
    predict_seconds: float
    learn_seconds: float
    memory: int | None

    @property
    def seconds(self) -> float:
        """Processor time of one test-then-train iteration."""
        return self.predict_seconds + self.learn_seconds


FIELDS = tuple(field.name for field in fields(Record))
FIGURES = FIELDS[3:]
WHOLE_NUMBERS = frozenset(
    ("step", "n_rows", "n_splits", "n_parameters", "n_nodes", "depth", "memory")
)


# ---------------------------------------------------------------------- files
class RecordFile:
    """Records in a CSV or JSONL file, each complete on the disk's side before the next one comes.

    Parameters
    ----------
    path : path
        Ends in .csv or .jsonl.

    Examples
    --------
    >>> import tempfile
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> path = Path(tempfile.mkdtemp()) / "records.csv"
    >>> with RecordFile(path) as file:
    ...     for record in prequential("dmt", sea(3000)):
    ...         file.write(record)
    >>> [record.n_rows for record in read_records(path)]
    [2000, 3000]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        _suffix_of(path)
        self._file: TextIO = open(self.path, "w", encoding="utf-8", newline="")  # noqa: SIM115
        _begin(self._file, self.path.suffix)
        self._file.flush()

    def write(self, record: Record) -> None:
        """Append a record."""
        _write(self._file, self.path.suffix, record)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_records(path: str | Path, records: Iterable[Record]) -> None:
    """Write records that are all known, as a whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> path = Path(tempfile.mkdtemp()) / "records.jsonl"
    >>> write_records(path, prequential("dmt", sea(3000)))
    >>> len(read_records(path))
    2
    """
    suffix = _suffix_of(path)
    with whole_text(path) as file:
        _begin(file, suffix)
        for record in records:
            _write(file, suffix, record)


def _suffix_of(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in (".csv", ".jsonl"):
        raise ValueError(f"records go to .csv or .jsonl files, got {str(path)!r}")
    return suffix


def _begin(file: TextIO, suffix: str) -> None:
    if suffix == ".csv":
        csv.writer(file).writerow(FIELDS)


def _write(file: TextIO, suffix: str, record: Record) -> None:
    values = asdict(record)
    if suffix == ".csv":
        csv.writer(file).writerow("" if values[name] is None else values[name] for name in FIELDS)
    else:
        finite = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in values.items()
        }
        file.write(json.dumps(finite) + "\n")


def read_records(path: str | Path) -> list[Record]:
    """Read records from a file; half a line at the end, left by a killed process, is ignored."""
    path = Path(path)
    with open(path, encoding="utf-8", newline="") as file:
        lines = [line for line in file if line.endswith("\n")]
    is_json = path.suffix == ".jsonl"
    rows: Iterable[dict[str, Any]] = map(json.loads, lines) if is_json else csv.DictReader(lines)
    return [Record(**{name: _parse(name, row.get(name)) for name in FIELDS}) for row in rows]


def _parse(name: str, value: Any) -> Any:
    if name == "learner":
        return value
    if value is None or value == "":
        return None if name in WHOLE_NUMBERS else math.nan
    return int(value) if name in WHOLE_NUMBERS else float(value)


# ---------------------------------------------------------------------- costs
COSTS = ("predict_seconds", "learn_seconds", "memory")  # of a process: no two are alike


def without_costs(record: Record) -> Record:
    """Return a record without what differs between two runs of the same: seconds and bytes.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> record = without_costs(next(prequential("dmt", sea(2000))))
    >>> round(record.f1, 2), record.learn_seconds, record.memory
    (0.87, nan, None)
    """
    return replace(record, predict_seconds=math.nan, learn_seconds=math.nan, memory=None)


def write_costs(path: Path, records: Iterable[Record]) -> None:
    """Write what each batch took: seconds and bytes.

    Examples
    --------
    >>> import tempfile
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> path = Path(tempfile.mkdtemp()) / "costs.csv"
    >>> write_costs(path, prequential("dmt", sea(2000)))
    >>> path.read_text().splitlines()[0]
    'learner,step,n_rows,predict_seconds,learn_seconds,memory'
    """
    with whole_text(path) as file:
        writer = csv.writer(file)
        writer.writerow(("learner", "step", "n_rows", *COSTS))
        for record in records:
            costs = [getattr(record, name) for name in COSTS]
            writer.writerow((record.learner, record.step, record.n_rows, *costs))


# ---------------------------------------------------------------------- summaries
class Figure(NamedTuple):
    """Mean and standard deviation over batches; NaN where nothing was measured."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.std:.3f}"


def columns(records: Iterable[Record]) -> dict[str, NDArray[np.float64]]:
    """Return the figures of one learner as arrays, NaN where unknown."""
    rows = list(records)
    values = {name: [getattr(record, name) for record in rows] for name in FIGURES}
    values["seconds"] = [record.seconds for record in rows]
    values["n_rows"] = [record.n_rows for record in rows]
    return {name: np.array(cells, dtype=np.float64) for name, cells in values.items()}


def summarise(records: Iterable[Record]) -> dict[str, dict[str, Figure]]:
    """Return mean and standard deviation of every figure, learner by learner.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> summary = summarise(prequential("majority", sea(5000)))
    >>> print(summary["majority"]["accuracy"])
    0.654 ± 0.016
    """
    return {
        learner: {name: _mean_and_std(values) for name, values in columns(rows).items()}
        for learner, rows in by_learner(records).items()
    }


def by_learner(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Sort records by learner, in their order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.learner, []).append(record)
    return groups


def _mean_and_std(values: NDArray[np.float64]) -> Figure:
    known = values[~np.isnan(values)]
    if not len(known):
        return Figure(math.nan, math.nan)
    return Figure(float(known.mean()), float(known.std()))


def slide(
    values: Sequence[float] | NDArray[np.float64], window: int = 20
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation over the last `window` values, at every value.

    The paper's figures use a window of 20 batches. Before there are as many, there are fewer in the
    window; unknown values (NaN) are left out.

    Examples
    --------
    >>> mean, std = slide([1.0, 3.0, 5.0, 5.0], window=2)
    >>> mean.tolist(), std.tolist()
    ([1.0, 2.0, 4.0, 5.0], [0.0, 1.0, 1.0, 0.0])
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    figures = np.asarray(values, dtype=np.float64)
    parts = [figures[max(0, stop - window) : stop] for stop in range(1, len(figures) + 1)]
    pairs = [_mean_and_std(part) for part in parts]
    return np.array([pair.mean for pair in pairs]), np.array([pair.std for pair in pairs])


# ---------------------------------------------------------------------- scores of one batch
# Each is equal to scikit-learn's.
SMALLEST = float(np.finfo(np.float64).eps)  # scikit-learn's bound on probabilities in the log loss


class Scores(NamedTuple):
    """How good the predictions of one batch were.

    Attributes
    ----------
    f1 : float
        F1 as the paper's authors compute it: the harmonic mean of weighted precision and weighted
        recall, where a class that was never predicted has the precision 0.
    accuracy : float
        Share of right predictions.
    kappa : float
        Cohen's kappa; NaN where all labels and predictions are one and the same class.
    log_loss : float
        Mean negative logarithm of the probability of the true label; NaN without probabilities.
    """

    f1: float
    accuracy: float
    kappa: float
    log_loss: float


def score(
    truth: NDArray[np.intp],
    predicted: NDArray[np.intp],
    probability: NDArray[np.float64] | None = None,
) -> Scores:
    """Score the predictions of a batch.

    Parameters
    ----------
    truth, predicted : array of int
        Codes of the labels, from 0. A prediction of -1 is none at all, and so is wrong.
    probability : array of float64, optional
        What the learner gave for the true label of each row.

    Examples
    --------
    >>> score(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), np.array([0.8, 0.4, 0.9, 0.6]))
    Scores(f1=0.789..., accuracy=0.75, kappa=0.5, log_loss=0.438...)
    """
    if len(truth) == 0:
        raise ValueError("there is nothing to score in a batch without rows")
    n_rows, n_classes = len(truth), int(max(truth.max(), predicted.max())) + 1
    support = np.bincount(truth, minlength=n_classes)
    n_predicted = np.bincount(predicted[predicted >= 0], minlength=n_classes)
    hits = np.bincount(truth[truth == predicted], minlength=n_classes)
    precision = float(support @ (hits / np.maximum(n_predicted, 1))) / n_rows
    accuracy = float(hits.sum()) / n_rows  # which is also the weighted recall
    by_chance = float(support @ n_predicted) / n_rows**2
    return Scores(
        f1=2 * precision * accuracy / (precision + accuracy) if precision + accuracy else 0.0,
        accuracy=accuracy,
        kappa=(accuracy - by_chance) / (1 - by_chance) if by_chance < 1 else float("nan"),
        log_loss=float("nan")
        if probability is None
        else float(-np.log(np.clip(probability, SMALLEST, 1 - SMALLEST)).mean()),
    )
