"""`driftree serve`: a model over HTTP."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftree.cli.run import Categorical, Parameters, columns_in, read_parameter
from driftree.cli.screen import HOOK_HELP, one_line, run_for_drift

if TYPE_CHECKING:
    from driftree.serve.recovery import Recovered


def serve(
    model: Annotated[Path, typer.Argument(help="The model file, such as model.dmt.")],
    host: Annotated[
        str, typer.Option(help="Where to listen; a host that other machines reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must send; else DRIFTREE_TOKEN."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Start with an empty model in a new file.")
    ] = False,
    task: Annotated[
        Literal["classification", "regression"] | None,
        typer.Option(help="Whether a new model predicts labels, which is the default, or numbers."),
    ] = None,
    param: Parameters = None,
    categorical: Categorical = "",
    labels: Annotated[
        str | None,
        typer.Option(help="Labels that may be learnt, separated by commas; others are refused."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Predict and explain only; write nothing.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="With --read-only: serve each model that another server saves."
        ),
    ] = False,
    snapshot_every: Annotated[
        int, typer.Option(min=1, help="Rows after which the model is saved.")
    ] = 10_000,
    without_journal: Annotated[
        bool,
        typer.Option(
            "--without-journal",
            help="Continue from the file alone, although its journal is missing.",
        ),
    ] = False,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 2**20,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.")] = 1000,
    max_features: Annotated[int, typer.Option(min=1, help="Features of the model.")] = 1000,
    max_labels: Annotated[int, typer.Option(min=1, help="Labels of the model.")] = 1000,
    on_drift: Annotated[str | None, typer.Option(help=HOOK_HELP)] = None,
) -> None:
    """Serve a model over HTTP: predict, learn, explain.

    What is learnt goes to MODEL.journal before it is acknowledged, so that no crash loses it;
    docs/serve.md has the guarantees. Ctrl-C and SIGTERM save the model and stop the server.
    """
    with one_line():
        try:
            from driftree.learn.validation import InputWarning
            from driftree.serve import server
            from driftree.serve.requests import Limits
        except ModuleNotFoundError as error:
            raise ImportError(
                f"serving needs {error.name}, which is not installed: pip install fastapi uvicorn"
            ) from None
        warnings.simplefilter("ignore", InputWarning)  # answers say what is unknown
        server.serve(
            model,
            host=host,
            port=port,
            token_file=token_file,
            new=new,
            task=task,
            categorical=columns_in(categorical),
            parameters=dict(map(read_parameter, param or ())),
            read_only=read_only,
            follow=follow,
            limits=Limits(
                max_body,
                max_rows,
                max_features,
                max_labels,
                labels=None if labels is None else _read_labels(labels),
            ),
            snapshot_every=snapshot_every,
            without_journal=without_journal,
            tell=_tell,
            on_drift=None if on_drift is None else run_for_drift(on_drift),
        )


def _read_labels(text: str) -> tuple[Any, ...]:
    """Read labels as JSON has them: numbers, true, false and quoted text; all else is text.

    Examples
    --------
    >>> _read_labels("yes, no"), _read_labels("0,1"), _read_labels('true,"1"')
    (('yes', 'no'), (0, 1), (True, '1'))
    """
    found = tuple(map(_read_label, columns_in(text)))
    if len(found) < 2:
        raise ValueError(f"--labels must name two labels or more, such as yes,no, got {text!r}")
    return found


def _read_label(text: str) -> Any:
    try:
        label = json.loads(text)
    except ValueError:
        return text
    return label if isinstance(label, bool | int | float | str) else text


def _tell(recovered: Recovered, host: str, port: int) -> None:
    if recovered.n_cut:
        typer.echo(
            f"driftree: the journal's last {recovered.n_cut:,} bytes were being written when the "
            f"process ended, and are dropped: at most {recovered.n_torn} batches, which were never "
            "acknowledged",
            err=True,
        )
    if not recovered.is_counted:
        typer.echo(
            "driftree: the journal's count of what was acknowledged is missing or damaged, so it "
            f"is unknown whether batches after {recovered.writer.sequence} are missing",
            err=True,
        )
    if recovered.n_batches:
        typer.echo(
            f"driftree: {recovered.n_batches} batches were recovered from the journal", err=True
        )
    name = f"[{host}]" if ":" in host else host
    n_rows = getattr(recovered.writer.model, "n_rows_seen_", 0)
    typer.echo(f"http://{name}:{port} serves {recovered.writer.path} ({n_rows:,} rows learnt)")
