"""Why do River's trees score otherwise than the paper's? One difference after the other is undone.

The authors used scikit-multiflow 0.5.3, from which River's trees descend. Each experiment runs a
learner of the paper by the paper's protocol, first as `driftree paper` runs it, then with changes
that take back what River does differently; the table shows F1 (mean and standard deviation over
batches) and the mean number of splits, counted as in the paper, beside the paper's.

    DRIFTREE_DATA=folder python benchmarks/differences.py
    DRIFTREE_DATA=folder python benchmarks/differences.py --only bank-vfdt,covertype-arf3

Changes:
`share` splits leaves whose majority has more than 99 % of the rows (River switches them off for
good); `window` takes the error of a branch from ADWIN's window, and compares it before and after a
cut (River: the mean since the last drift, which one row moves); `keep` keeps ADWIN's window after
a drift (River empties it); `votes` lets only the tree itself vote, not its alternate branches;
`after` tells the forest's detectors whether a row is predicted well once it is learnt (River:
before).
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from options import names
from rich.console import Console
from rich.table import Table
from river import drift, forest, tree
from river.tree.nodes.branch import DTBranch

from driftree.cli.screen import Progress, one_line
from driftree.evaluate import summarise
from driftree.evaluate.learners import HOEFFDING
from driftree.evaluate.parallel import News, run_tasks
from driftree.evaluate.records import Figure
from driftree.evaluate.runs import BATCH_SHARE
from driftree.paper import published
from driftree.paper.experiments import run_protocol
from driftree.streams import load_data_set


# ---------------------------------------------------------------------- learners
class KeepingADWIN(drift.ADWIN):
    """ADWIN that only drops the old part of its window when it finds a drift."""

    def update(self, x: float) -> None:
        """Take the next value."""
        self._drift_detected = self._helper.update(x)


class WindowError:
    """The error in a detector's window, in the place of a node's mean error."""

    def __init__(self, detector: drift.ADWIN) -> None:
        self.detector = detector

    @property
    def n(self) -> int:
        """Return how many rows the window has."""
        return self.detector.width

    def get(self) -> float:
        """Return the error."""
        return self.detector.estimation

    def update(self, _: float) -> None:
        """Do nothing: the detector has seen the row."""

    def clone(self) -> "WindowError":
        """Return this: the detector forgets by itself."""
        return self


class AdaptiveTree(tree.HoeffdingAdaptiveTreeClassifier):
    """HT-Ada with some of scikit-multiflow's habits."""

    habits: frozenset[str] = frozenset()

    def _adopt(self, node: Any) -> Any:
        if "window" in self.habits:
            node._mean_error = WindowError(node.drift_detector)
        return node

    def _new_leaf(self, *arguments: Any, **parameters: Any) -> Any:
        return self._adopt(super()._new_leaf(*arguments, **parameters))

    def _branch_selector(self, *arguments: Any, **parameters: Any) -> Any:
        branch = super()._branch_selector(*arguments, **parameters)
        return lambda *parts, **attributes: self._adopt(branch(*parts, **attributes))

    def predict_proba_one(self, x: Any) -> Any:
        """Return the votes for each class."""
        leaf: Any = self._root
        if "votes" not in self.habits or leaf is None:
            return super().predict_proba_one(x)
        if isinstance(leaf, DTBranch):
            leaf = DTBranch.traverse(leaf, x, until_leaf=True)
        return dict.fromkeys(sorted(self.classes), 0.0) | leaf.prediction(x, tree=self)


class ForestTestedAfter(forest.ARFClassifier):
    """Adaptive random forest that tests a tree for drift by what it predicts after it learnt."""

    def learn_one(self, x: dict[Any, Any], y: Any, **parameters: Any) -> None:
        """Learn a row."""
        self._row = x
        super().learn_one(x, y, **parameters)

    def _drift_detector_input(self, tree_id: int, y_true: Any, y_pred: Any) -> int:
        return int(self[tree_id].predict_one(self._row) != y_true)


def settings(changes: frozenset[str]) -> dict[str, Any]:
    """Return what all trees are told."""
    return HOEFFDING | ({"max_share_to_split": 1.0} if "share" in changes else {})


def make_tree(changes: frozenset[str], seed: int) -> Any:
    """Return VFDT (MC), which draws nothing."""
    return tree.HoeffdingTreeClassifier(**settings(changes))


def make_adaptive_tree(changes: frozenset[str], seed: int) -> Any:
    """Return HT-Ada."""
    detector: Any = KeepingADWIN if "keep" in changes else drift.ADWIN
    model = AdaptiveTree(
        bootstrap_sampling=False,
        drift_detector=detector(),
        seed=seed,
        **settings(changes),
    )
    model.habits = changes
    return model


def make_forest(changes: frozenset[str], seed: int) -> Any:
    """Return the adaptive random forest of three trees."""
    kind = ForestTestedAfter if "after" in changes else forest.ARFClassifier
    return kind(n_models=3, seed=seed, **settings(changes))


# ---------------------------------------------------------------------- experiments
class Case(NamedTuple):
    """A learner whose figures differ from the paper's, and the sets of changes to try."""

    data_set: str
    learner: str
    make: Callable[[frozenset[str], int], Any]
    changes: tuple[str, ...]
    seeds: tuple[int, ...] = (1,)
    n_batches: int | None = None  # all, and then the paper's figures are comparable


CASES = {
    "bank-vfdt": Case("bank_marketing", "vfdt-mc", make_tree, ("", "share")),
    "kdd-vfdt": Case("kddcup99_10pct", "vfdt-mc", make_tree, ("", "share")),
    "bank-ht-ada": Case(
        "bank_marketing", "ht-ada", make_adaptive_tree, ("", "share", "share window keep votes")
    ),
    "sea-ht-ada": Case("sea", "ht-ada", make_adaptive_tree, ("", "window keep")),
    "covertype-ht-ada": Case(
        "covertype", "ht-ada", make_adaptive_tree, ("", "share window keep votes")
    ),
    "covertype-votes": Case(
        "covertype",
        "ht-ada",
        make_adaptive_tree,
        ("", "votes", "share window keep votes"),
        n_batches=100,
    ),
    "covertype-arf3": Case(
        "covertype", "arf3", make_forest, ("", "after", "share after"), (1, 2, 3), 100
    ),
}


class Task(NamedTuple):
    """One run."""

    case: str
    changes: str
    seed: int


class Result(NamedTuple):
    """F1, and splits as the paper counts them, over the batches."""

    f1: Figure
    n_paper_splits: Figure


def run(task: Task, news: News, should_stop: Callable[[], bool]) -> Result | None:
    """Run the paper's protocol; None if it was stopped."""
    case = CASES[task.case]
    data = load_data_set(case.data_set, preprocess="paper")
    batch_rows = max(1, round(BATCH_SHARE * data.n_rows))
    n_rows = data.n_rows if case.n_batches is None else (case.n_batches + 1) * batch_rows
    model = case.make(frozenset(task.changes.split()), task.seed)
    records = []
    for record in run_protocol({case.learner: model}, data, max_rows=n_rows):
        records.append(record)
        news(record.n_rows, n_rows, f"F1 {record.f1:.3f}")
        if should_stop():
            return None
    figures = summarise(records)[case.learner]
    return Result(figures["f1"], figures["n_paper_splits"])


def run_all(tasks: Sequence[Task], n_jobs: int, console: Console) -> dict[Task, Result]:
    """Run all tasks, `n_jobs` at a time, and show their progress."""
    results: dict[Task, Result] = {}
    titles = [f"{task.case} {task.changes or 'River'} {task.seed}" for task in tasks]
    with Progress(console, titles, what="runs") as progress:
        for place, result in run_tasks(run, tasks, n_jobs=n_jobs, news=progress.tell):
            if result is not None:
                results[tasks[place]] = result
                progress.finish(place, f"F1 {result.f1.mean:.3f}")
    return results


# ---------------------------------------------------------------------- output
def tabulate(results: dict[Task, Result]) -> Table:
    """Lay out the results beside the paper's, which stand in parentheses if they saw more rows."""
    title = "River's learners, and what brings the paper's figures"
    table = Table(title=title, title_justify="left")
    for heading in ("data set", "learner", "rows", "changes"):
        table.add_column(heading)
    for heading in ("F1", "splits", "paper F1", "paper splits"):
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(task.case for task in results):
        case = CASES[name]
        where = (case.data_set, case.learner)
        theirs = [show([published.F1[where]], 2)]
        theirs += [show([published.SPLITS[where]], 1) if where in published.SPLITS else "-"]
        if case.n_batches is not None:
            theirs = [f"({text})" for text in theirs]
        for changes in case.changes:
            group = [results[task] for task in results if task[:2] == (name, changes)]
            rows = "all" if case.n_batches is None else f"first {case.n_batches / 10:g} %"
            table.add_row(
                case.data_set,
                case.learner,
                rows if len(group) == 1 else f"{rows}, {len(group)} seeds",
                changes.replace(" ", " + ") or "River's",
                show([result.f1 for result in group], 3),
                show([result.n_paper_splits for result in group], 1),
                *theirs,
            )
        table.add_section()
    return table


def show(figures: Sequence[Figure], digits: int) -> str:
    """Say mean and standard deviation of one run, or mean and range over the seeds."""
    if len(figures) == 1:
        return f"{figures[0].mean:.{digits}f} ± {figures[0].std:.{min(2, digits)}f}"
    means = [figure.mean for figure in figures]
    return f"{np.mean(means):.{digits}f} ({min(means):.{digits}f} - {max(means):.{digits}f})"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names(list(CASES)), default=list(CASES))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_arguments(arguments)
    tasks = [
        Task(name, changes, seed)
        for name in options.only
        for changes in CASES[name].changes
        for seed in CASES[name].seeds
    ]
    results = run_all(tasks, options.jobs, Console(stderr=True))
    width = max(Console().width, 136)  # rather wrapped lines than shortened figures
    Console(width=width).print(tabulate(results))


if __name__ == "__main__":
    with one_line():
        main()
