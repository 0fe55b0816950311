"""`driftree demo`: a tree that learns loan applications while the rule behind them changes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import driftree
from driftree.cli.report import command_line
from driftree.cli.screen import PLAIN_LINES, consoles, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from driftree.evaluate.records import Record

# ---------------------------------------------------------------------- demo
# Agrawal's rules by number, and what each means. The third is a straight line: one leaf is enough.
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


class Race:
    """Two learners in the demo, row by row through the same stream, with their records.

    `alone` leaves out River's, which takes most of the time.
    """

    def __init__(self, n_rows: int, seed: int, *, alone: bool = False) -> None:
        from river.tree import HoeffdingTreeClassifier

        from driftree.evaluate import Evaluation

        self.n_rows = n_rows
        self.batch_rows = max(100, round(n_rows / 1000))  # 0.1 % as in the paper, or a little more
        self.seed = seed
        self.ours = driftree.DynamicModelTreeClassifier(categorical=DEMO_CATEGORIES, seed=seed)
        theirs = HoeffdingTreeClassifier(
            leaf_prediction="nba",
            delta=0.01,
            binary_split=True,
            nominal_attributes=list(DEMO_CATEGORIES),
        )
        learners = {"dmt": self.ours} | ({} if alone else {"vfdt-nba": theirs})
        self.evaluation = Evaluation(learners, step_rows=1)
        self.records: dict[str, list[Record]] = {name: [] for name in learners}

    def run(self) -> Iterator[int]:
        """Let both learn the stream; yield the rows learnt after every batch."""
        import numpy as np

        from driftree.streams import AGRAWAL_FEATURES, drifting_agrawal

        stream = drifting_agrawal(
            self.n_rows,
            batch_rows=self.batch_rows,
            seed=self.seed,
            functions=tuple(DEMO_RULES),
            perturbation=DEMO_SHIFT,
        )
        labels = np.array(DEMO_LABELS, dtype=object)
        for X, y in stream:
            columns = dict(zip(AGRAWAL_FEATURES, X.T, strict=True))
            columns.update({name: columns[name].astype(int) for name in DEMO_CATEGORIES})
            for record in self.evaluation.take(columns, labels[y]):
                self.records[record.learner].append(record)
            yield self.evaluation.n_rows

    def report(self, path: Path, command: str) -> None:
        """Write the report of the tree, with the other's scores."""
        records = [record for group in self.records.values() for record in group]
        title = f"{self.n_rows:,} loan applications, and a rule that changes"
        n_rules = len(DEMO_RULES)
        drifts = [place * self.n_rows // n_rules for place in range(1, n_rules)]
        settings = {
            "command": command,
            "rows": f"{self.n_rows:,}, learnt one by one, measured by {self.batch_rows:,}",
            "seed": self.seed,
        }
        driftree.report(self.ours, records, path, title=title, drifts=drifts, settings=settings)

    def f1(self, learner: str, start: float = 0, stop: float = math.inf) -> float:
        """Return the mean F1 of the batches that begin in a part of the stream, or NaN."""
        scores = [
            record.f1
            for record in self.records[learner]
            if start <= record.n_rows - self.batch_rows < stop
        ]
        return sum(scores) / len(scores) if scores else math.nan

    def n_splits(self, learner: str) -> int:
        """Return the present number of splits."""
        records = self.records[learner]
        return (records[-1].n_splits or 0) if records else 0

    def rows_per_second(self, learner: str) -> float:
        """Return the rows predicted and learnt per second of CPU time."""
        seconds = sum(record.seconds for record in self.records[learner])
        return len(self.records[learner]) * self.batch_rows / max(seconds, 1e-9)


def demo(
    context: typer.Context,
    rows: Annotated[int, typer.Option(min=1000, help="Loan applications to learn.")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random stream.")] = 1,
    out: Annotated[Path, typer.Option(help="The report to write.")] = Path("driftree-demo.html"),
) -> None:
    """Watch a tree learn loan applications while the rule behind them changes three times."""
    console, _ = consoles()
    with one_line():
        out.parent.mkdir(parents=True, exist_ok=True)  # fail now rather than after the run
        race = Race(rows, seed)
        _introduce(console, rows)
        show = _show_live if console.is_terminal and not console.is_dumb_terminal else _show_lines
        show(console, race)
        _conclude(console, race)
        race.report(out, command_line(context))
        console.print(
            f"\nAll of it, at any time of the stream: open {out.resolve().as_uri()}",
            soft_wrap=True,
        )


# ---------------------------------------------------------------------- what the demo shows
def _introduce(console: Console, n_rows: int) -> None:
    console.print(
        f"{n_rows:,} loan applications, each predicted before it is learnt. Their numbers are "
        f"perturbed by up to {DEMO_SHIFT:.0%} of their range. The rule behind them changes "
        "without notice:"
    )
    for place, words in enumerate(DEMO_RULES.values()):
        start = place * n_rows // len(DEMO_RULES) + 1
        console.print(f"  rule {place + 1} from row {start:>{len(f'{n_rows:,}')},}: {words}")
    console.print()


def _show_live(console: Console, race: Race) -> None:
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
    task = bar.add_task("rows", total=race.n_rows)
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for done in race.run():
            bar.update(task, completed=done)
            changes = getattr(race.ours, "events_", [])
            last = Text(f"last change: {changes[-1]}" if changes else "")
            live.update(Group(bar, _table(race), last))


def _show_lines(console: Console, race: Race) -> None:
    """Print a line for every tenth of the stream, for files, pipes and simple terminals."""
    from driftree.evaluate.learners import title_of

    shown = 0
    for done in race.run():
        part = done * PLAIN_LINES // race.n_rows
        if part == shown:
            continue
        shown = part
        words = "; ".join(
            f"{title_of(name)} F1 {_score(race.f1(name))}, {race.n_splits(name)} splits, "
            f"{race.rows_per_second(name):,.0f} rows/s"
            for name in race.records
        )
        console.print(f"{done:>{len(f'{race.n_rows:,}')},} rows: {words}", soft_wrap=True)
    console.print()


def _score(f1: float) -> str:
    return "-" if math.isnan(f1) else f"{f1:.3f}"


def _table(race: Race) -> Table:
    from rich import box
    from rich.table import Table

    from driftree.evaluate.learners import title_of

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    n_rules = len(DEMO_RULES)
    headings = ["F1", *(f"rule {place + 1}" for place in range(n_rules)), "splits", "rows/s"]
    for heading in headings:
        table.add_column(heading, justify="right")
    edges = [place * race.n_rows / n_rules for place in range(n_rules + 1)]
    for name in race.records:
        scores = [race.f1(name), *(race.f1(name, start, stop) for start, stop in pairwise(edges))]
        table.add_row(
            title_of(name),
            *map(_score, scores),
            f"{race.n_splits(name):,}",
            f"{race.rows_per_second(name):,.0f}",
        )
    return table


def _conclude(console: Console, race: Race) -> None:
    console.print(_table(race))
    console.print(
        f"\nF1: harmonic mean of weighted precision and recall, mean over batches of "
        f"{race.batch_rows:,} rows, under all rules and under each. Splits: inner nodes, at "
        "the end. Rows/s: predicting and learning dicts one by one, CPU time, one thread.\n",
        style="dim",
    )
    console.print("The tree that driftree ends with:\n", style="bold")
    text = driftree.export_text(race.ours, max_weights=4, width=console.width)
    console.print(text, soft_wrap=True)
    _tell_changes(console, race.ours.events_, race.n_rows)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _tell_changes(console: Console, changes: list[Any], n_rows: int) -> None:
    from driftree.explain.changes import KINDS

    kinds = Counter(KINDS[change.kind] for change in changes)
    counts = ", ".join(_count(number, kind) for kind, number in kinds.items()) or "none yet"
    console.print(f"\nIts last changes under each rule (in all: {counts}):", style="bold")
    by_rule: dict[int, list[Any]] = {}
    for change in changes:
        by_rule.setdefault((change.n_rows - 1) * len(DEMO_RULES) // n_rows + 1, []).append(change)
    for rule, its_changes in by_rule.items():
        console.print(f"\nrule {rule}, {_count(len(its_changes), 'change')}")
        for change in its_changes[-DEMO_CHANGES:]:
            console.print(f"- {change}")
