"""Hooks: a command of the user's that is run for every drift."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from driftree.explain import Drift

SECONDS = 60  # that a command may take
HELP = "Command of the shell to run for every drift, with what is known of it as JSON on its input."


def run_for_drift(command: str) -> Callable[[Drift], None]:
    """Return what runs a command for a drift, and says so if that fails."""

    def run(drift: Drift) -> None:
        told = json.dumps(drift.to_dict(), default=str)
        try:
            done = subprocess.run(
                command, shell=True, input=told, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            typer.echo(f"driftree: {command!r} took more than {SECONDS} s", err=True)
            return
        if done.returncode:
            typer.echo(f"driftree: {command!r} ended with {done.returncode}", err=True)

    return run
