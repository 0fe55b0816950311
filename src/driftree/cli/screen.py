"""What the commands have in common: progress, files, messages for a user's mistakes."""

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

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended
MISTAKE = 2  # and for one that was called wrongly
PLAIN_LINES = 10  # of progress, where nothing can be drawn
OPTIONS = {  # how errors of the library are said here
    'on_bad_row="skip"': "--on-bad-row skip",
    "header=False": "--no-header",
    "name the column in drop or in categorical": "name the column in --drop or in --categorical",
    "name the column in drop": "name the column in --drop",
    "name the column in categorical": "name the column in --categorical",
}

HOOK_SECONDS = 60  # that a command may take
HOOK_HELP = "Shell command to run on every drift; what is known of it comes as JSON on its stdin."


@contextmanager
def one_line() -> Iterator[None]:
    """Say a user's mistake in one line, and end on Ctrl-C without many words."""
    from concurrent.futures.process import BrokenProcessPool

    from driftree.streams import DataSetUnavailable

    mistakes = (BrokenProcessPool, DataSetUnavailable, ImportError, OSError, TypeError, ValueError)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of our output has closed it
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
    """Write a file as a whole, or not at all."""
    from driftree.learn.storage.atomic import replace_text

    replace_text(path, json.dumps(what, indent=1) + "\n")


# ---------------------------------------------------------------------- hooks
def run_for_drift(command: str) -> Callable[[Drift], None]:
    """Return what runs a command for a drift, and says so if that fails."""

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
