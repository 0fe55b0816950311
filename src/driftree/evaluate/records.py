"""Records of scores, one per batch and learner: files and summaries."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.evaluate.scores import NumberScores, Scores, Size
from driftree.learn.storage.atomic import Closing, whole_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

    from numpy.typing import NDArray

    from driftree.evaluate.quality import Confusion
    from driftree.streams.stream import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Scores, size and cost of one learner in one batch.

    Attributes
    ----------
    learner : str
        Its name.
    step : int
        Number of the batch, from 1; the batch that only trained, if there was one, is 0.
    n_rows : int
        Rows of the stream up to the end of this batch.
    f1, accuracy, kappa, log_loss, ece : float
        See `Scores`; NaN for regression.
    majority : float
        Accuracy in this batch of predicting the most frequent label so far; NaN for regression.
    macro_f1, auc : float
        See `Quality`; like `ece`, over all rows so far. NaN for regression.
    mae, rmse, r2 : float
        See `NumberScores`; NaN for labels.
    target_mean, predicted_mean : float
        Means over the batch of targets and predictions; NaN for labels.
    n_splits, n_paper_splits, n_parameters, n_nodes, depth : int or None
        Size after the batch was learnt, see `Size`; None where unknown.
    predict_seconds, learn_seconds : float
        CPU time of this thread.
    memory : int or None
        Bytes. Learners that do not count them themselves are measured only at steps 1, 2, 4, 8,
        ..., since traversing all their objects is slow; in between it is None.
    confusion : dict of dict or None
        Rows of the batch by true label, then by predicted label, as text. The first 10 labels have
        names; the others are "(others)", and no prediction is "(nothing)". None for regression, and
        in older files. `label_blocks` computes recall and precision from it.
    """

    learner: str
    step: int
    n_rows: int
    f1: float = math.nan
    accuracy: float = math.nan
    kappa: float = math.nan
    log_loss: float = math.nan
    ece: float = math.nan
    majority: float = math.nan
    macro_f1: float = math.nan
    auc: float = math.nan
    mae: float = math.nan
    rmse: float = math.nan
    r2: float = math.nan
    target_mean: float = math.nan
    predicted_mean: float = math.nan
    n_splits: int | None
    n_paper_splits: int | None
    n_parameters: int | None
    n_nodes: int | None
    depth: int | None
    predict_seconds: float
    learn_seconds: float
    memory: int | None
    confusion: Confusion | None = field(default=None, hash=False)

    @property
    def seconds(self) -> float:
        """CPU time of one test-then-train iteration."""
        return self.predict_seconds + self.learn_seconds

    @property
    def task(self) -> Task:
        """What was predicted: "classification" or "regression"."""
        return "classification" if math.isnan(self.mae) else "regression"

    @property
    def n_leaves(self) -> int | None:
        """Leaves of a tree whose splits have two sides; None where unknown."""
        return None if self.n_nodes is None else (self.n_nodes + 1) // 2


FIELDS = tuple(own.name for own in fields(Record))
SCORES: dict[str, tuple[str, ...]] = {
    "classification": (*Scores._fields, "majority", "macro_f1", "auc", "confusion"),
    "regression": (*NumberScores._fields, "target_mean", "predicted_mean"),
}
SO_FAR = frozenset(("ece", "macro_f1", "auc"))  # over all rows so far, not the batch
WHOLE_NUMBERS = frozenset(("step", "n_rows", *Size._fields, "memory"))


def fields_of(task: Task) -> tuple[str, ...]:
    """Return the fields that records of a task have.

    Examples
    --------
    >>> fields_of("regression")[:6]
    ('learner', 'step', 'n_rows', 'mae', 'rmse', 'r2')
    """
    others = {name for names in SCORES.values() for name in names} - {*SCORES[task]}
    return tuple(name for name in FIELDS if name not in others)


def figures_of(task: Task) -> tuple[str, ...]:
    """Return the numeric fields of a task, including the step and the rows."""
    return tuple(name for name in fields_of(task) if name not in ("learner", "confusion"))


# ---------------------------------------------------------------------- files
class RecordFile(Closing):
    """A CSV or JSONL file of records, each flushed before the next one is written.

    The first record determines the columns: all records of a file have the same task.

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
        self._writer = _Writer(self._file, self.path.suffix)

    def write(self, record: Record) -> None:
        """Append a record."""
        self._writer.write(record)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write_records(path: str | Path, records: Iterable[Record]) -> None:
    """Write records to a file, atomically.

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
        writer = _Writer(file, suffix)
        for record in records:
            writer.write(record)


def _suffix_of(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in (".csv", ".jsonl"):
        raise ValueError(f"records go to .csv or .jsonl files, got {str(path)!r}")
    return suffix


class _Writer:
    """Writes lines, with the fields of the first record's task."""

    task: Task | None = None

    def __init__(self, file: TextIO, suffix: str) -> None:
        self.file, self.is_csv = file, suffix == ".csv"

    def write(self, record: Record) -> None:
        if self.task not in (None, record.task):
            raise ValueError(f"a file of {self.task} cannot hold a record of {record.task}")
        names = fields_of(record.task)
        values = [getattr(record, name) for name in names]
        if self.is_csv:
            writer = csv.writer(self.file)
            if self.task is None:
                writer.writerow(names)
            writer.writerow(map(_for_csv, values))
        else:
            told = {name: _for_json(value) for name, value in zip(names, values, strict=True)}
            self.file.write(json.dumps(told) + "\n")
        self.task = record.task


def _for_csv(value: Any) -> Any:
    """Return the text of a cell; a dict becomes JSON."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else value


def _for_json(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no infinity."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def read_records(path: str | Path) -> list[Record]:
    """Read records from a file; an incomplete last line, left by a killed process, is ignored.

    In older files without `n_paper_splits`, the column `n_splits` held that count: it is read as
    such, and `n_splits` is None, since it cannot be derived for ensembles.
    """
    path = Path(path)
    with open(path, encoding="utf-8", newline="\n") as file:  # a name may hold "\r"
        lines = [line for line in file if line.endswith("\n")]
    is_json = path.suffix == ".jsonl"
    rows: Iterable[dict[str, Any]] = map(json.loads, lines) if is_json else csv.DictReader(lines)
    return [
        Record(**{name: _parse(name, row.get(name)) for name in FIELDS})
        for row in (with_both_counts(row, None) for row in rows)
    ]


def with_both_counts(figures: dict[str, Any], n_splits: Any) -> dict[str, Any]:
    """Return the figures of a record, or columns of them, with both counts of splits.

    Older files called `n_paper_splits` `n_splits`. The present `n_splits` is derived, if possible.
    """
    if "n_paper_splits" in figures:
        return figures
    return {**figures, "n_paper_splits": figures.get("n_splits"), "n_splits": n_splits}


def _parse(name: str, value: Any) -> Any:
    if name == "learner":
        return value
    if value is None or value == "":
        return None if name in WHOLE_NUMBERS or name == "confusion" else math.nan
    if name == "confusion":
        return value if isinstance(value, dict) else json.loads(value)
    return int(value) if name in WHOLE_NUMBERS else float(value)


# ---------------------------------------------------------------------- costs
COSTS = ("predict_seconds", "learn_seconds", "memory")  # of a process, different in every run


def without_costs(record: Record) -> Record:
    """Return a record without what differs between runs: seconds and bytes.

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
    """Write the costs of each batch: seconds and bytes.

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

    def to_text(self) -> str:
        """Return both with a suitable number of digits, for any unit; `str` is for shares.

        Examples
        --------
        >>> Figure(35012.7, 1234.9).to_text(), Figure(0.001234, 0.00021).to_text()
        ('35,013 ± 1,235', '0.00123 ± 0.00021')
        """
        mean, std = (show_number(number, like=self.mean) for number in self)
        return f"{mean} ± {std}"


def show_number(number: float, *, like: float | None = None, digits: int = 3) -> str:
    """Return a number with some significant digits, or as many decimals as another one has.

    Examples
    --------
    >>> show_number(35012.7), show_number(51.26), show_number(0.0019), show_number(2e-9)
    ('35,013', '51.3', '0.0019', '2e-09')
    """
    model = abs(number if like is None else like)
    if not math.isfinite(number) or not math.isfinite(model):
        return f"{number:.{digits}g}"
    if model == 0 or 1e-6 <= model < 1e9:
        n_decimals = 0 if model == 0 else max(0, digits - 1 - math.floor(math.log10(model)))
        text = f"{number:,.{n_decimals}f}"
        return text if like is not None or "." not in text else text.rstrip("0").rstrip(".")
    return f"{number:.{digits}g}"


def columns(records: Iterable[Record]) -> dict[str, NDArray[np.float64]]:
    """Return the figures of one learner as arrays, NaN where unknown."""
    rows = list(records)
    names = figures_of(rows[0].task if rows else "classification")[2:]
    values = {name: [getattr(record, name) for record in rows] for name in names}
    values["seconds"] = [record.seconds for record in rows]
    values["n_rows"] = [record.n_rows for record in rows]
    return {name: np.array(cells, dtype=np.float64) for name, cells in values.items()}


def summarise(records: Iterable[Record]) -> dict[str, dict[str, Figure]]:
    """Return mean and standard deviation of every figure, learner by learner.

    `ece`, `macro_f1` and `auc` are over all rows so far in each record, so their last values are
    used instead of means.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> summary = summarise(prequential("majority", sea(5000)))
    >>> print(summary["majority"]["accuracy"])
    0.654 ± 0.016
    """
    return {
        learner: {
            name: Figure(float(values[-1]), math.nan) if name in SO_FAR else _mean_and_std(values)
            for name, values in columns(rows).items()
        }
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
    if not np.isfinite(known).all():  # a learner has diverged
        return Figure(float(known.mean()), math.nan)
    with np.errstate(over="ignore"):  # of a learner that diverges
        return Figure(float(known.mean()), float(known.std()))


def slide(
    values: Sequence[float] | NDArray[np.float64], window: int = 20
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation over the last `window` values, at every value.

    The paper's figures use a window of 20 batches. At the beginning the window is shorter; unknown
    values (NaN) are left out.

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
