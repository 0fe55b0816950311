"""Experiments: the paper's protocol for one learner on one data set, and all results.

Each experiment is run once and cached. The key of a result is what it depends on: the rows, the
size of the batches, the learner with all its settings, and the version of the code.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

import driftree.estimators
import driftree.learn
from driftree.evaluate.learners import LEARNERS, make_learner
from driftree.evaluate.prequential import BATCH_SHARE, prequential
from driftree.evaluate.records import Figure, Record, read_records, summarise, write_records
from driftree.paper.published import TITLES
from driftree.show.provenance import versions
from driftree.streams.catalogue import DATA_SETS
from driftree.streams.datasets import LoadedData, list_data_sets, load_data_set
from driftree.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from driftree.evaluate.parallel import News

PROTOCOL = 1  # increase it when the meaning of a record changes
NOT_RUN = "not run"
# Learners that need no preprocessing: they get the features that were text as categorical, not
# those that the authors call categorical.
TOLD_OF_TEXT_ONLY = {"dmt", "forest"}
# Substitutes for data sets of the paper that are only partly available.
STAND_INS = {"airlines": ("airlines_5of7_features", "5 of 7 features, without the two airports")}

Results = Mapping[tuple[str, str], Sequence[Record]]


@dataclass(frozen=True)
class Experiment:
    """A learner, by name, on a data set, by name.

    Attributes
    ----------
    data_set, learner : str
        Names, see `DATA_SETS` and `LEARNERS`.
    max_rows : int or None
        Only the first rows; batches have the same size as for the whole stream.
    seed : int
        Of the learners that use random numbers.
    """

    data_set: str
    learner: str
    max_rows: int | None = None
    seed: int = 1


def run_protocol(
    learners: Mapping[str, Any],
    data: LoadedData,
    *,
    max_rows: int | None = None,
    step_rows: int | None = None,
) -> Iterator[Record]:
    """Test, then train, on batches of 0.1 % of the whole stream; the first batch only trains.

    Parameters
    ----------
    learners : mapping of str to learner
        The learners.
    data : LoadedData
        The data set.
    max_rows : int, optional
        Only the first rows.
    step_rows : int, optional
        As in `prequential`; by default the whole batch, as in the paper.
    """
    batch_rows = max(1, round(BATCH_SHARE * data.n_rows))
    n_rows = min(data.n_rows, max_rows or data.n_rows)
    if n_rows <= batch_rows:
        raise ValueError(
            f"{data.name} has only {n_rows} rows, no more than its first batch, which is "
            f"not tested: give more than {batch_rows}"
        )
    stream = open_stream((data.X, data.y), batch=batch_rows, n_rows=n_rows)
    classes = np.unique(data.y).tolist()
    return prequential(learners, stream, step_rows=step_rows, classes=classes)


class ExperimentTask(NamedTuple):
    """An experiment, and the folder of cached results."""

    experiment: Experiment
    folder: Path


def run_experiment(
    task: ExperimentTask, news: News, should_stop: Callable[[], bool]
) -> list[Record] | None:
    """Return the records of an experiment, from the cache or by running it now.

    Parameters
    ----------
    task : ExperimentTask
        What to run. Results in the folder are complete.
    news : callable
        Called with the rows done, the rows in all, and a text to show.
    should_stop : callable
        Called after every batch; a stopped experiment is lost.

    Returns
    -------
    list of Record or None
        None if it was stopped.
    """
    experiment = task.experiment
    data = _load(experiment.data_set)
    is_told_of_text = experiment.learner in TOLD_OF_TEXT_ONLY
    categorical = data.text_features if is_told_of_text else data.categorical
    model = make_learner(experiment.learner, categorical=categorical, seed=experiment.seed)
    n_rows = min(data.n_rows, experiment.max_rows or data.n_rows)
    key = _make_key(experiment, data, model)
    path = task.folder / experiment.data_set / f"{experiment.learner}-{key}.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        records = []
        for record in run_protocol({experiment.learner: model}, data, max_rows=experiment.max_rows):
            records.append(record)
            news(record.n_rows, n_rows, f"F1 {record.f1:.3f}")
            if should_stop():
                return None
        write_records(path, records)
    return read_records(path)


@lru_cache(maxsize=1)
def _load(name: str) -> LoadedData:
    """Load a data set once for consecutive learners."""
    return load_data_set(name, preprocess="paper")


def _make_key(experiment: Experiment, data: LoadedData, model: Any) -> str:
    """Return the cache key of a result."""
    assert isinstance(data.X, np.ndarray)
    what = {
        "rows": _hash_arrays(data.X[: experiment.max_rows], data.y[: experiment.max_rows]),
        "batch_rows": max(1, round(BATCH_SHARE * data.n_rows)),
        "learner": _settings(model),
        "code": code_version(experiment.learner),
        "protocol": PROTOCOL,
    }
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def _hash_arrays(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _settings(model: Any) -> Any:
    """Return the class and all parameters of a learner, and of those inside it."""
    if not hasattr(model, "_get_params"):  # which classes of River and driftree have
        return repr(model)
    parameters = {name: _settings(value) for name, value in sorted(model._get_params().items())}
    return {type(model).__qualname__: parameters}


@lru_cache
def code_version(learner: str) -> str:
    """Return the version of the code that a learner's results depend on."""
    if not LEARNERS[learner].is_ours:
        return f"river {version('river')}"
    digest = hashlib.sha256()
    inside = sorted(Path(driftree.learn.__file__).parent.iterdir())
    for file in [Path(driftree.estimators.__file__), *inside]:
        if file.suffix in (".py", ".so", ".pyd"):
            digest.update(file.read_bytes())
    return f"driftree {digest.hexdigest()}"


# ---------------------------------------------------------------------- data sets
def find_data_sets(
    names: Iterable[str], download: Callable[[str], bool] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the available data sets, some in part, and why others are missing.

    Parameters
    ----------
    names : iterable of str
        The wanted data sets of the paper.
    download : callable or None
        Downloads one by its name, and returns whether it succeeded.
    """
    status = {found.name: found for found in list_data_sets(DATA_SETS.values())}
    here, missing = [], {}
    for name in names:
        stand_in = STAND_INS.get(name, (name,))[0]
        if not status[name].found.startswith("not here"):
            here.append(name)
        elif not status[stand_in].found.startswith("not here"):
            here.append(stand_in)
        elif status[name].found == "not here: download" and download is not None:
            if download(name):
                here.append(name)
            else:
                missing[name] = "could not be downloaded"
        else:
            by_hand = status[name].found == "not here: by hand"
            missing[name] = "to be fetched by hand" if by_hand else "not here"
    return here, missing


def estimate_cost(experiment: Experiment) -> float:
    """Return the approximate relative cost of an experiment."""
    counts = DATA_SETS[experiment.data_set].counts
    n_rows = min(counts.n_rows, experiment.max_rows or counts.n_rows)
    return LEARNERS[experiment.learner].cost * n_rows * counts.n_features


def count_data_set(name: str) -> tuple[int, int, int, int | None]:
    """Return rows, features, classes and the rows of the most frequent class."""
    loaded = load_data_set(name)
    counts = np.unique(loaded.y, return_counts=True)[1]
    is_counted = DATA_SETS[name].counts.n_majority is not None
    majority = int(counts.max()) if is_counted else None
    return loaded.n_rows, len(loaded.feature_names), len(counts), majority


# ---------------------------------------------------------------------- findings
@dataclass(frozen=True, kw_only=True)
class PaperResults:
    """All results, and what is missing: the data of the tables.

    Attributes
    ----------
    summaries : mapping of (data set, learner) to mapping of str to Figure
        Mean and standard deviation of every figure of a run, see `summarise`.
    counts : mapping of data set to (rows, features, classes, rows of the majority)
        Of the available data sets.
    missing : mapping of data set to str
        Why a data set is missing.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.paper.six_tables import table_f1
    >>> from driftree.streams import sea
    >>> results = {("sea", "vfdt-mc"): list(prequential("vfdt-mc", sea(5000)))}
    >>> findings = PaperResults.from_records(results, missing={"gas": "no network"})
    >>> cell = table_f1(findings).cells["vfdt-mc", "sea"]
    >>> print(cell.ours, "here,", cell.paper, "in the paper")
    0.743 ± 0.114 here, 0.860 ± 0.030 in the paper
    """

    summaries: Mapping[tuple[str, str], Mapping[str, Figure]] = field(default_factory=dict)
    counts: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_records(
        cls,
        results: Results,
        *,
        counts: Mapping[str, Sequence[int | None]] | None = None,
        missing: Mapping[str, str] | None = None,
    ) -> Self:
        """Summarise the records of each data set and learner."""
        summaries = {
            (data_set, learner): summarise(records)[learner]
            for (data_set, learner), records in results.items()
            if records
        }
        return cls(summaries=summaries, counts=counts or {}, missing=missing or {})

    @cached_property
    def had(self) -> dict[str, str]:
        """The available data sets of the paper, each with the name of its substitute, if any."""
        names = {*self.counts, *(data_set for data_set, _ in self.summaries)}
        places = {name: STAND_INS.get(name, (name, ""))[0] for name in TITLES}
        return {
            name: name if name in names else place
            for name, place in places.items()
            if name in names or place in names
        }

    @cached_property
    def run(self) -> list[str]:
        """The paper's data sets with results."""
        names = {data_set for data_set, _ in self.summaries}
        return [name for name, place in self.had.items() if place in names]

    def is_stand_in(self, data_set: str) -> bool:
        """Whether a data set has a substitute."""
        return self.had.get(data_set, data_set) != data_set

    def figure(self, data_set: str, learner: str, name: str) -> Figure | None:
        """Return the result of a learner on one of the paper's data sets."""
        summary = self.summaries.get((self.had.get(data_set, ""), learner))
        return None if summary is None else summary[name]

    def data_set_note(self, data_set: str) -> str:
        """Return a note on what is missing of a data set, and why."""
        if self.is_stand_in(data_set):
            return STAND_INS[data_set][1]
        if data_set in self.had:
            return ""
        return f"not available: {self.missing[data_set]}" if data_set in self.missing else ""

    def notes(self) -> list[str]:
        """List what is missing, and why."""
        partial = [
            f"† {TITLES[name]}: {STAND_INS[name][1]} ({place}); it counts in the means"
            for name, place in self.had.items()
            if place != name
        ]
        lost = [name for name in TITLES if name in self.missing and name not in self.had]
        idle = [name for name in TITLES if name not in (*lost, *self.run)]
        return [
            *partial,
            *(f"not available: {name} ({self.missing[name]})" for name in lost),
            *([f"{NOT_RUN}: {', '.join(idle)}"] if idle else []),
        ]


def sum_up(findings: PaperResults, results: Results) -> dict[str, Any]:
    """Return the means and standard deviations of all experiments, with versions, for JSON."""
    return {
        "versions": versions(),
        "missing": dict(findings.missing),
        "results": [
            {
                "data_set": data_set,
                "learner": learner,
                "rows": records[-1].n_rows,
                "batches": len(records),
                **{
                    name: [round(figure.mean, 6), round(figure.std, 6)]
                    for name, figure in findings.summaries[data_set, learner].items()
                    if name not in ("memory", "n_rows") and not math.isnan(figure.mean)
                },
            }
            for (data_set, learner), records in results.items()
        ],
    }
