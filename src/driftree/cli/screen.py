"""What the commands have in common: progress, tables, and the words for a user's mistake."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from driftree.evaluate.records import Record

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended
MISTAKE = 2  # and for one that was called wrongly
PLAIN_LINES = 10  # of progress, where nothing can be drawn


@contextmanager
def one_line() -> Iterator[None]:
    """Say a user's mistake in one line, and end on Ctrl-C without many words."""
    from driftree.streams import DataSetUnavailable

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (DataSetUnavailable, ImportError, OSError, ValueError) as error:
        typer.echo(f"driftree: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(MISTAKE) from None


def consoles() -> tuple[Console, Console]:
    """Return the console for results, and the one for progress, which is no part of them."""
    from rich.console import Console

    return Console(highlight=False), Console(stderr=True, highlight=False)


def names_of(text: str, known: Iterable[str], what: str) -> list[str]:
    """Read a list of names such as "dmt,vfdt-nba"."""
    from difflib import get_close_matches

    allowed = list(known)
    chosen = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in chosen:
        if name not in allowed:
            close = get_close_matches(name, allowed, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise ValueError(f"there is no {what} {name!r}{hint}: choose from {', '.join(allowed)}")
    if not chosen:
        raise ValueError(f"name at least one {what} of {', '.join(allowed)}")
    return chosen


class Progress:
    """A bar for each task that is under way; plain lines where nothing can be drawn.

    Parameters
    ----------
    console : Console
        Where to.
    titles : sequence of str
        Names of the tasks.
    what : str, optional
        What the tasks are, for a bar that counts the finished ones, which then take no place.
    """

    def __init__(self, console: Console, titles: Sequence[str], what: str = "") -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.console = console
        self.titles = titles
        self.is_drawn = console.is_terminal and not console.is_dumb_terminal
        self.tenths = [0] * len(titles)
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[words]}", style="dim"),
            console=console,
            disable=not self.is_drawn,
        )
        self.places = [
            self.bars.add_task(title, total=None, unit="rows", words="", visible=False)
            for title in titles
        ]
        self.sum = (
            self.bars.add_task(what, total=len(titles), unit=f"of {len(titles)}", words="")
            if what
            else None
        )

    def __enter__(self) -> Progress:
        self.bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bars.stop()

    def tell(self, place: int, done: int, total: int | None, words: str) -> None:
        """Show how far a task has come."""
        self.bars.update(self.places[place], completed=done, total=total, words=words, visible=True)
        tenth = PLAIN_LINES * done // total if total else 0
        if not self.is_drawn and self.sum is None and tenth > self.tenths[place]:
            self.tenths[place] = tenth
            self._print(f"{self.titles[place]}: {done:,} of {total:,} rows; {words}")

    def finish(self, place: int, words: str) -> None:
        """Show that a task is done."""
        done = self.bars.tasks[place].completed or 1
        self.bars.update(
            self.places[place],
            completed=done,
            total=done,
            words=words,
            visible=self.sum is None,
        )
        if self.sum is not None:
            self.bars.advance(self.sum)
        if self.sum is not None or not self.is_drawn:
            self._print(f"{self.titles[place]}: {words}")

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False)


def tabulate(records: Iterable[Record], batch_rows: int) -> Table:
    """Lay out how well, how simply and how fast each learner did."""
    from rich import box
    from rich.table import Table

    from driftree.evaluate.records import by_learner, summarise

    groups = by_learner(records)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("learner")
    for heading in ("F1", "accuracy", "kappa", "log loss", "splits", "parameters", "rows/s", "MB"):
        table.add_column(heading, justify="right")
    summary = summarise(record for group in groups.values() for record in group)
    for learner, group in groups.items():
        figures = summary[learner]
        memory = [record.memory for record in group if record.memory is not None]
        table.add_row(
            learner,
            str(figures["f1"]),
            *(_show(figures[name].mean, 3) for name in ("accuracy", "kappa", "log_loss")),
            _show(figures["n_splits"].mean, 1),
            _show(figures["n_parameters"].mean, 0),
            _show(batch_rows / max(figures["seconds"].mean, 1e-9), 0),
            _show(memory[-1] / 1e6 if memory else float("nan"), 1),
        )
    return table


def _show(figure: float, digits: int) -> str:
    return "-" if figure != figure else f"{figure:,.{digits}f}"  # noqa: PLR0124 (not a number)
