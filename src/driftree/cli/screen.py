"""What the commands share: progress bars, files, error messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from driftree.explain import Drift

INTERRUPTED = 130  # the exit code of a command ended by Ctrl-C
MISTAKE = 2  # and of one with invalid arguments
PLAIN_LINES = 10  # between lines of progress, if bars cannot be drawn
OPTIONS = {  # the library's hints, in terms of options
    'on_bad_row="skip"': "--on-bad-row skip",
    "header=False": "--no-header",
    "name the column in drop or in categorical": "name the column in --drop or in --categorical",
    "name the column in drop": "name the column in --drop",
    "name the column in categorical": "name the column in --categorical",
    "Maybe you are trying to fit a classifier, which expects discrete classes on a regression "
    "target with continuous values.": "Give --task regression, or name the target in --categorical "
    "if each value is a label",
}

HOOK_SECONDS = 60  # that a command may take
HOOK_HELP = "Shell command to run on every drift; it gets the drift as JSON on stdin."


@contextmanager
def one_line() -> Iterator[None]:
    """Print an error in one line, and exit on Ctrl-C without a traceback."""
    from concurrent.futures.process import BrokenProcessPool

    from driftree.streams import DataSetUnavailable

    mistakes = (BrokenProcessPool, DataSetUnavailable, ImportError, OSError, TypeError, ValueError)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # the output was closed by its reader
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except mistakes as error:
        words = " ".join(str(error).split())
        for name, option in OPTIONS.items():
            words = words.replace(name, option)
        typer.echo(f"driftree: {words}", err=True)
        raise typer.Exit(MISTAKE) from None


def consoles() -> tuple[Console, Console]:
    """Return the console for results, and the one for progress, on standard error."""
    from rich.console import Console

    plain: dict[str, Any] = {
        "highlight": False,
        "markup": False,
        "emoji": False,
    }  # names are the user's
    return Console(**plain), Console(stderr=True, **plain)


def names_of(text: str, known: Iterable[str], what: str) -> list[str]:
    """Read a list of names such as "dmt,vfdt-nba"."""
    from driftree.streams.catalogue import check_name

    allowed = list(known)
    chosen = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not chosen:
        raise ValueError(f"name at least one {what} of {', '.join(allowed)}")
    return [check_name(name, allowed, what) for name in chosen]


class Progress:
    """A progress bar for each running task; plain lines if bars cannot be drawn.

    Parameters
    ----------
    console : Console
        Where to print.
    titles : sequence of str
        Names of the tasks.
    what : str, optional
        What the tasks are, for one bar that counts the finished ones instead of a bar for each.
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
        """Show the progress of a task."""
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
        self.console.print(line, soft_wrap=True)


def write_json(path: Path, what: object) -> None:
    """Write a JSON file atomically."""
    from driftree.learn.storage.atomic import replace_text

    replace_text(path, json.dumps(what, indent=1) + "\n")


# ---------------------------------------------------------------------- hooks
def run_for_drift(command: str) -> Callable[[Drift], None]:
    """Return a function that runs a command for a drift, and prints a message if that fails."""

    def run(drift: Drift) -> None:
        told = json.dumps(drift.to_dict(), default=str)
        try:
            done = subprocess.run(
                command, shell=True, input=told, text=True, timeout=HOOK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            typer.echo(f"driftree: {command!r} took more than {HOOK_SECONDS} s", err=True)
            return
        if done.returncode:
            typer.echo(f"driftree: {command!r} ended with {done.returncode}", err=True)

    return run
