"""Experiments: the paper's protocol for one learner on one data set, run once and then remembered.

A result is found again by what it depends on: the rows, the size of the batches, the learner with
all its settings, and the version of the code that computes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import driftree.learn
from driftree.evaluate.learners import LEARNERS, make_learner
from driftree.evaluate.prequential import prequential
from driftree.evaluate.records import Record, RecordFile, read_records
from driftree.streams.datasets import LoadedData, load_data_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from driftree.evaluate.parallel import News

BATCH_SHARE = 0.001  # of the rows of a stream, in the paper
PROTOCOL = 1  # to be raised when what a record says changes its meaning


@dataclass(frozen=True)
class Experiment:
    """A learner, by name, on a data set, by name.

    Attributes
    ----------
    data_set, learner : str
        Names, see `DATA_SETS` and `LEARNERS`.
    max_rows : int or None
        Only the first rows; batches keep the size that they have on the whole stream.
    seed : int
        For those learners that draw.
    """

    data_set: str
    learner: str
    max_rows: int | None = None
    seed: int = 1


class Trial:
    """The rows and the learner of an experiment, ready to run.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    X, y : array
        All rows, features as numbers.
    categorical : sequence of int
        Columns that were text, for those learners that want to know.
    """

    def __init__(
        self,
        experiment: Experiment,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        categorical: tuple[int, ...] = (),
    ) -> None:
        self.experiment = experiment
        self.batch_rows = max(1, round(BATCH_SHARE * len(y)))
        self.classes: list[int] = np.unique(y).tolist()
        self.X, self.y = X[: experiment.max_rows], y[: experiment.max_rows]
        if len(self.y) <= self.batch_rows:
            raise ValueError(
                f"{experiment.data_set} has only {len(self.y)} rows to run on, no more than its "
                f"first batch, which is not tested: give more than {self.batch_rows}"
            )
        self.model = make_learner(experiment.learner, categorical=categorical, seed=experiment.seed)
        self.key = self._make_key()

    def _make_key(self) -> str:
        """Say in short what the result depends on."""
        what = {
            "rows": _hash_arrays(self.X, self.y),
            "batch_rows": self.batch_rows,
            "learner": _settings(self.model),
            "code": code_version(self.experiment.learner),
            "protocol": PROTOCOL,
        }
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]

    def run(self) -> Iterator[Record]:
        """Test, then train, on batches of 0.1 %; the first batch only trains."""
        stream = (
            (self.X[start : start + self.batch_rows], self.y[start : start + self.batch_rows])
            for start in range(0, len(self.y), self.batch_rows)
        )
        learners = {self.experiment.learner: self.model}
        return prequential(learners, stream, classes=self.classes)


class ExperimentTask(NamedTuple):
    """An experiment, and the folder where results are kept."""

    experiment: Experiment
    folder: Path


def run_experiment(
    task: ExperimentTask, news: News, should_stop: Callable[[], bool]
) -> list[Record] | None:
    """Return the records of an experiment: those of an earlier run, or else run it now.

    Parameters
    ----------
    task : ExperimentTask
        What to run. A result that is in the folder is complete.
    news : callable
        Is told the rows done, the rows in all, and words.
    should_stop : callable
        Asked after every batch; what was done so far of the experiment is then lost.

    Returns
    -------
    list of Record or None
        None if it was stopped.
    """
    experiment = task.experiment
    data = _load(experiment.data_set)
    wants_text = LEARNERS[experiment.learner].is_told_of_text_only
    categorical = data.text_features if wants_text else data.categorical
    assert isinstance(data.X, np.ndarray)
    trial = Trial(experiment, data.X, data.y, categorical)
    path = task.folder / experiment.data_set / f"{experiment.learner}-{trial.key}.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.csv")
        try:
            with RecordFile(unfinished) as file:
                for record in trial.run():
                    file.write(record)
                    news(record.n_rows, len(trial.y), f"F1 {record.f1:.3f}")
                    if should_stop():
                        return None
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return read_records(path)


@lru_cache(maxsize=1)
def _load(name: str) -> LoadedData:
    """Load a data set once for all learners that come one after the other."""
    return load_data_set(name, preprocess="paper")


def _hash_arrays(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _settings(model: Any) -> Any:
    """Return the class and all parameters of a learner, and of those inside it."""
    if not hasattr(model, "_get_params"):  # which River's classes have, and so have driftree's
        return repr(model)
    parameters = {name: _settings(value) for name, value in sorted(model._get_params().items())}
    return {type(model).__qualname__: parameters}


@lru_cache
def code_version(learner: str) -> str:
    """Return the version of the code that a learner's results depend on."""
    if not LEARNERS[learner].is_ours:
        return f"river {version('river')}"
    digest = hashlib.sha256()
    for file in sorted(Path(driftree.learn.__file__).parent.iterdir()):
        if file.suffix in (".py", ".so", ".pyd"):
            digest.update(file.read_bytes())
    return f"driftree {digest.hexdigest()}"
