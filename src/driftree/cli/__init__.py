"""The command line: `driftree`. The only room that prints.

Commands import what they need when they run.
"""

from __future__ import annotations

from typing import Annotated

import typer

import driftree
from driftree.cli import demo, model_commands, paper, report, run, serve
from driftree.cli.screen import one_line

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


def versions() -> None:
    """Show versions, the kernels' instruction set and the machine, for bug reports."""
    with one_line():
        driftree.show_versions()


app.command()(demo.demo)
app.command()(run.run)
app.command()(run.compare)
app.command()(model_commands.predict)
app.command()(model_commands.explain)
app.command()(model_commands.learn)
app.command()(report.report)
app.command()(serve.serve)
app.command()(serve.stream)
app.command()(model_commands.export)
app.command()(paper.paper)
app.add_typer(paper.data_app, name="data")
app.command()(versions)
