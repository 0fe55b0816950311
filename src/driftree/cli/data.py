"""`driftree data`: which data sets are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from driftree.cli.screen import consoles, names_of, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="The paper's data sets: what is here, and get them.")


@app.command("list")
def list_() -> None:
    """Show the paper's thirteen data sets, which of them are here, and where."""
    from rich import box
    from rich.table import Table

    from driftree.streams import DATA_SETS, cache_folder, list_data_sets
    from driftree.streams.cache import data_folder

    console, _ = consoles()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("name")
    for heading in ("rows", "features", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("here")
    with one_line():
        for status in list_data_sets():
            counts = DATA_SETS[status.name].counts
            where = status.found
            if status.path is not None:
                where += f" ({status.n_bytes / 1e6:.1f} MB)"
            table.add_row(
                status.name,
                f"{counts.n_rows:,}",
                str(counts.n_features),
                str(counts.n_classes),
                where,
            )
        folder = data_folder()
    console.print(table)
    console.print(
        f"\nDRIFTREE_DATA: {folder or 'not set'}; cache: {cache_folder()}. Put others as "
        "NAME.csv.gz (features first, last column `target`) into one of these, or get them with: "
        "driftree data get NAME",
        style="dim",
        soft_wrap=True,
    )


@app.command()
def get(
    names: Annotated[str, typer.Argument(help="One or more names, separated by commas.")],
) -> None:
    """Download data sets into the cache; an interrupted download goes on where it was."""
    from driftree.streams import DATA_SETS

    console, error_console = consoles()
    with one_line():
        for name in names_of(names, DATA_SETS, "data set"):
            console.print(f"{name}: {fetch_with_progress(name, error_console)}", soft_wrap=True)


def fetch_with_progress(name: str, console: Console) -> Path:
    """Download a data set, if it is not here, behind a bar."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from driftree.streams import fetch_data_set

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task(name, total=None)

        def show(done: int, total: int | None) -> None:
            progress.update(bar, completed=done, total=total)

        return fetch_data_set(name, progress=show)
