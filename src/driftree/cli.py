"""The command line: `driftree demo`. The only place that prints.

Commands import what they need when they run.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

import driftree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.table import Table

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"driftree {driftree.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Small, readable trees that learn from data streams and say why they change."""


@contextmanager
def _leave_quietly() -> Iterator[None]:
    """End on Ctrl-C without words."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


# ---------------------------------------------------------------------- demo
# Agrawal's rules by number, and what each says. The third is a straight line: one leaf is enough.
DEMO_RULES = {
    0: "age alone: below 40, or 60 and more",
    1: "a band of salaries that depends on age",
    6: "income against loan, a straight line",
    2: "levels of education that depend on age",
}
DEMO_CATEGORIES = ("education", "car", "zipcode")
DEMO_LABELS = ("granted", "refused")
DEMO_SHIFT = 0.05  # numbers are shifted by up to 5 % of their range after labelling
DEMO_CHANGES = 2  # sentences per rule
PLAIN_LINES = 10


@dataclass
class Contestant:
    """A learner in the demo, with its scores."""

    name: str
    model: Any
    count_splits: Callable[[Any], int]
    seconds: float = 0.0
    n_rows: int = 0
    f1_scores: list[tuple[int, float]] = field(default_factory=list)  # with the batch's first row

    def learn(self, rows: list[dict[str, float]], labels: list[str]) -> None:
        """Predict each row, then learn it; the first batch is not scored."""
        predict, learn = self.model.predict_one, self.model.learn_one
        predicted = []
        start = time.thread_time()  # without what the display takes
        for row, label in zip(rows, labels, strict=True):
            predicted.append(predict(row))
            learn(row, label)
        self.seconds += time.thread_time() - start
        if self.n_rows:
            self.f1_scores.append((self.n_rows, batch_f1(labels, predicted)))
        self.n_rows += len(rows)

    @property
    def n_splits(self) -> int:
        """Splits at present, as the paper counts them."""
        return self.count_splits(self.model)

    @property
    def rows_per_second(self) -> float:
        """Rows predicted and learnt per second of processor time."""
        return self.n_rows / max(self.seconds, 1e-9)

    def f1(self, start: float = 0, stop: float = math.inf) -> float:
        """Mean F1 of the batches that begin in a part of the stream; NaN if there are none."""
        scores = [score for row, score in self.f1_scores if start <= row < stop]
        return sum(scores) / len(scores) if scores else math.nan


def batch_f1(labels: list[str], predicted: list[str]) -> float:
    """Return F1 as the paper computes it: harmonic mean of weighted precision and weighted recall.

    Examples
    --------
    >>> round(batch_f1(["a", "a", "b", "b"], ["a", "b", "b", "b"]), 3)
    0.789
    """
    n_true, n_predicted = Counter(labels), Counter(predicted)
    hits = Counter(label for label, guess in zip(labels, predicted, strict=True) if label == guess)
    recall = hits.total() / len(labels)
    precision = sum(
        n_true[label] / len(labels) * hits[label] / n_predicted[label] for label in hits
    )
    return 2 * precision * recall / (precision + recall) if hits else 0.0


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1000, help="Loan applications to learn.")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another stream.")] = 1,
) -> None:
    """Watch a tree learn loan applications while the rule behind them changes three times."""
    from rich.console import Console

    console = Console(highlight=False)
    with _leave_quietly():
        contestants = _make_contestants(seed)
        _introduce(console, rows)
        show = _show_live if console.is_terminal and not console.is_dumb_terminal else _show_lines
        show(console, contestants, rows, _learn_demo(contestants, rows, seed))
        _conclude(console, contestants, rows)


def _make_contestants(seed: int) -> list[Contestant]:
    from river.tree import HoeffdingTreeClassifier

    ours = driftree.DynamicModelTreeClassifier(categorical=DEMO_CATEGORIES, seed=seed)
    theirs = HoeffdingTreeClassifier(
        leaf_prediction="nba",
        delta=0.01,
        binary_split=True,
        nominal_attributes=list(DEMO_CATEGORIES),
    )
    return [
        Contestant("driftree", ours, lambda model: model.n_splits_),
        # Its leaves hold Naive Bayes models, each of which the paper counts as one split more.
        Contestant("River VFDT-NBA", theirs, lambda model: model.n_branches + model.n_leaves),
    ]


def _learn_demo(contestants: list[Contestant], n_rows: int, seed: int) -> Iterator[int]:
    """Let all learn the stream side by side; yield the rows learnt after every batch."""
    from driftree.streams import AGRAWAL_FEATURES, drifting_agrawal

    stream = drifting_agrawal(
        n_rows,
        batch_rows=_batch_rows(n_rows),
        seed=seed,
        functions=tuple(DEMO_RULES),
        perturbation=DEMO_SHIFT,
    )
    done = 0
    for X, y in stream:
        batch = [dict(zip(AGRAWAL_FEATURES, row, strict=True)) for row in X.tolist()]
        for row in batch:
            row.update({name: int(row[name]) for name in DEMO_CATEGORIES})
        labels = [DEMO_LABELS[code] for code in y.tolist()]
        for contestant in contestants:
            contestant.learn(batch, labels)
        done += len(batch)
        yield done


def _batch_rows(n_rows: int) -> int:
    """Batches of 0.1 % as in the paper, but not below 100 rows."""
    return max(100, round(n_rows / 1000))


# ---------------------------------------------------------------------- what the demo shows
def _introduce(console: Console, n_rows: int) -> None:
    console.print(
        f"{n_rows:,} loan applications, each predicted before it is learnt. Their numbers are off "
        f"by up to {DEMO_SHIFT:.0%} of their range. The rule behind them changes without notice:"
    )
    for place, words in enumerate(DEMO_RULES.values()):
        start = place * n_rows // len(DEMO_RULES) + 1
        console.print(f"  rule {place + 1} from row {start:>{len(f'{n_rows:,}')},}: {words}")
    console.print()


def _show_live(
    console: Console, contestants: list[Contestant], n_rows: int, progress: Iterator[int]
) -> None:
    """Redraw a bar and a table in place."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    bar = Progress(
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    task = bar.add_task("rows", total=n_rows)
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for done in progress:
            bar.update(task, completed=done)
            changes = contestants[0].model.events_
            last = Text(f"last change: {changes[-1]}" if changes else "")
            live.update(Group(bar, _table(contestants, n_rows), last))


def _show_lines(
    console: Console, contestants: list[Contestant], n_rows: int, progress: Iterator[int]
) -> None:
    """Print a line for every tenth of the stream: for files, pipes and simple terminals."""
    shown = 0
    for done in progress:
        part = done * PLAIN_LINES // n_rows
        if part == shown:
            continue
        shown = part
        words = "; ".join(
            f"{one.name} F1 {_score(one.f1())}, {one.n_splits} splits, "
            f"{one.rows_per_second:,.0f} rows/s"
            for one in contestants
        )
        console.print(f"{done:>{len(f'{n_rows:,}')},} rows: {words}", soft_wrap=True)
    console.print()


def _score(f1: float) -> str:
    return "-" if math.isnan(f1) else f"{f1:.3f}"


def _table(contestants: list[Contestant], n_rows: int) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    n_rules = len(DEMO_RULES)
    headings = ["F1", *(f"rule {place + 1}" for place in range(n_rules)), "splits", "rows/s"]
    for heading in headings:
        table.add_column(heading, justify="right")
    edges = [place * n_rows / n_rules for place in range(n_rules + 1)]
    for one in contestants:
        scores = [one.f1(), *(one.f1(start, stop) for start, stop in pairwise(edges))]
        table.add_row(
            one.name, *map(_score, scores), f"{one.n_splits:,}", f"{one.rows_per_second:,.0f}"
        )
    return table


def _conclude(console: Console, contestants: list[Contestant], n_rows: int) -> None:
    console.print(_table(contestants, n_rows))
    console.print(
        f"\nF1: harmonic mean of weighted precision and recall, mean over batches of "
        f"{_batch_rows(n_rows):,} rows, under all rules and under each. Splits: inner nodes plus "
        "one per leaf model, at the end. Rows/s: predicting and learning dicts one by one, "
        "processor time, one thread.\n",
        style="dim",
    )
    model = contestants[0].model
    console.print("The tree that driftree ends with:\n", style="bold")
    text = driftree.export_text(model, max_weights=4, width=console.width)
    console.print(text, markup=False, soft_wrap=True)
    _tell_changes(console, model.events_, n_rows)


def _tell_changes(console: Console, changes: list[Any], n_rows: int) -> None:
    kinds = Counter(type(change).__name__ for change in changes)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none yet"
    console.print(f"\nIts last changes under each rule (in all: {counts}):", style="bold")
    by_rule: dict[int, list[Any]] = {}
    for change in changes:
        by_rule.setdefault((change.n_rows - 1) * len(DEMO_RULES) // n_rows + 1, []).append(change)
    for rule, its_changes in by_rule.items():
        console.print(f"\nrule {rule}, {len(its_changes)} changes")
        for change in its_changes[-DEMO_CHANGES:]:
            console.print(f"- {change}", markup=False)
