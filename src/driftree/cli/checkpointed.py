"""`driftree run --resume`: killed at any moment, the same command goes on."""

from __future__ import annotations

import errno
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftree.cli.run import CHECKPOINTS, conclude, prepare, read_settings, stem_of
from driftree.cli.screen import Progress, consoles, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from driftree.evaluate.runs import CheckpointedResult, CheckpointedTask

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_checkpointed(
    source: str,
    *,
    every: int | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Run a learner with checkpoints, or resume it."""
    from driftree.evaluate.checkpoints import EVERY, Checkpointer
    from driftree.evaluate.runs import CheckpointedTask, check_resumable

    with one_line():
        if resume and overwrite:
            raise ValueError("--resume continues results, --overwrite replaces them: give one")
        settings = read_settings(source, **options)
        check_resumable(settings)
        folder = out or Path("driftree-results") / stem_of(source)
        prepare(folder, settings, overwrite=overwrite, resume=resume)
        with Checkpointer(folder / CHECKPOINTS, every=every or EVERY) as checkpointer:
            _run(CheckpointedTask(settings, folder / "records.csv", checkpointer))


def _run(task: CheckpointedTask) -> None:
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.runs import run_with_checkpoints

    console, error_console = consoles()

    def tell_to_wait() -> None:
        error_console.print("Stopping after this batch; Ctrl-C again stops at once")

    try:
        with _warnings_on(error_console), Progress(error_console, task.settings.learners) as bars:
            [(_, result)] = run_tasks(
                run_with_checkpoints, [task], asked=tell_to_wait, news=bars.tell
            )
            bars.finish(0, f"done after {result.run.n_rows:,} rows")
        if not result.records:
            raise ValueError(
                f"{task.settings.source} has no more rows than one batch, which only trains: give "
                "more rows or a smaller --batch, and --overwrite"
            )
        _conclude(console, task, result)
    except KeyboardInterrupt:
        error_console.print(
            "Stopped; with --resume, the same command goes on from the last checkpoint"
        )
        raise
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise OSError(f"{error}; make room, and with --resume the same command goes on") from error


def _conclude(console: Console, task: CheckpointedTask, result: CheckpointedResult) -> None:
    """Write the results; what a process took is in a file of its own, and on the screen."""
    from driftree.evaluate.records import without_costs, write_costs

    folder = task.records.parent
    [model] = result.run.learners.values()
    model.save(folder / "model.dmt")
    write_costs(folder / "costs.csv", result.records)
    records = [without_costs(record) for record in result.records]
    conclude(console, task.settings, folder, records, [result.run], result.records)
    console.print(f"{folder}: model.dmt, costs.csv", soft_wrap=True)


@contextmanager
def _warnings_on(console: Console) -> Iterator[None]:
    """Say what is not as it should be about the checkpoints in a line of its own."""
    from driftree.evaluate.checkpoints import CheckpointWarning

    show = warnings.showwarning

    def say(message: Warning | str, category: type[Warning], *more: Any, **named: Any) -> None:
        if issubclass(category, CheckpointWarning):
            console.print(f"driftree: warning: {message}", soft_wrap=True)
        else:
            show(message, category, *more, **named)

    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = say
        yield
