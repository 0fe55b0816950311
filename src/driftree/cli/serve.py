"""A model as a service: `driftree serve` over HTTP, `driftree stream` over Kafka topics."""

from __future__ import annotations

import json
import signal
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftree.cli.run import Categorical, Parameters, columns_in, read_parameter
from driftree.cli.screen import HOOK_HELP, one_line, run_for_drift

if TYPE_CHECKING:
    from driftree.scale.kafka import KafkaStream
    from driftree.serve.recovery import Recovered

MODEL_FILE = "model.dmt"  # of `driftree stream`, in its folder


# ---------------------------------------------------------------------- HTTP
def serve(
    model: Annotated[Path, typer.Argument(help="The model file, such as model.dmt.")],
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; one that other machines can reach needs a token."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free port.")
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that clients must send; by default it is DRIFTREE_TOKEN."
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Start with an empty model in a new file.")
    ] = False,
    task: Annotated[
        Literal["classification", "regression"] | None,
        typer.Option(help="With --new: predict labels (the default) or numbers."),
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
            "--follow", help="With --read-only: reload the model whenever another server saves it."
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
    max_body: Annotated[int, typer.Option(min=1, help="Largest request, in bytes.")] = 2**20,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Largest number of rows in a request.")
    ] = 1000,
    max_features: Annotated[
        int, typer.Option(min=1, help="Largest number of features of the model.")
    ] = 1000,
    max_labels: Annotated[
        int, typer.Option(min=1, help="Largest number of labels of the model.")
    ] = 1000,
    on_drift: Annotated[str | None, typer.Option(help=HOOK_HELP)] = None,
) -> None:
    """Serve a model over HTTP: predict, learn, explain.

    What is learnt is written to MODEL.journal before it is acknowledged, so that it survives a
    crash; docs/serve.md has the guarantees. Ctrl-C and SIGTERM save the model and stop the server.
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
        warnings.simplefilter("ignore", InputWarning)  # responses list unknown names
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
    """Read labels as in JSON: numbers, true, false and quoted text; anything else is text.

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


# ---------------------------------------------------------------------- Kafka
def stream(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of the checkpoints; model.dmt is written there at the end."),
    ],
    brokers: Annotated[str, typer.Option(help="The cluster, such as kafka1:9092,kafka2:9092.")],
    rows: Annotated[
        str,
        typer.Option(
            "--in",
            help="Topic of the rows, and of the labels unless they have a topic of their own.",
        ),
    ],
    predictions: Annotated[str | None, typer.Option("--out", help="Topic for predictions.")] = None,
    labels: Annotated[str | None, typer.Option(help="Topic of the labels.")] = None,
    dead: Annotated[
        str | None, typer.Option(help="Topic for messages that cannot be used, with a reason.")
    ] = None,
    events: Annotated[str | None, typer.Option(help="Topic for changes of the tree.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model file to start with, instead of an empty model.")
    ] = None,
    task: Annotated[
        Literal["classification", "regression"],
        typer.Option(help="Whether an empty model predicts labels or numbers."),
    ] = "classification",
    id_field: Annotated[str, typer.Option("--id", help="Field that joins rows and labels.")] = "id",
    label_field: Annotated[str, typer.Option("--label", help="Field of the label.")] = "label",
    window: Annotated[
        float, typer.Option(min=0, help="Longest time that a row waits for its label, in seconds.")
    ] = 3600.0,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of allowed features and their types: number, text or boolean."
        ),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Messages between checkpoints.")] = 10_000,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for an idle partition.")
    ] = 0.1,
    config: Annotated[
        list[str] | None,
        typer.Option(help="A setting of librdkafka, as name=value; may be repeated."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for Prometheus, on 127.0.0.1.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end of the topics.")
    ] = False,
) -> None:
    """Predict and learn the rows of Kafka topics, each exactly once.

    If killed at any moment, the same command resumes from its last checkpoint; docs/kafka.md
    describes messages and guarantees. Ctrl-C and SIGTERM end it with a checkpoint.
    """
    with one_line():
        from driftree.scale.joined import JoinedStream
        from driftree.scale.kafka import KafkaStream

        joined = JoinedStream(
            _first_model(model, task),
            id_field=id_field,
            label_field=label_field,
            window=window,
            schema=None if schema is None else _read_schema(schema),
        )
        with KafkaStream(
            joined,
            folder,
            brokers=brokers,
            rows=rows,
            labels=labels,
            predictions=predictions,
            dead=dead,
            events=events,
            every=every,
            wait=wait,
            config=_read_config(config or []),
        ) as running:
            _run_until_stopped(running, metrics_port, until_end=until_end)
            running.model.save(folder / MODEL_FILE)
            typer.echo(_summary(running), err=True)


def _run_until_stopped(running: KafkaStream, metrics_port: int | None, *, until_end: bool) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running.stop())
    if metrics_port is not None:
        from driftree.scale.joined import serve_metrics

        port = serve_metrics(running.metrics, metrics_port)
        typer.echo(f"driftree: metrics at http://127.0.0.1:{port}/metrics", err=True)
    running.run(until_end=until_end)


def _first_model(path: Path | None, task: str) -> Any:
    import driftree

    if path is not None:
        return driftree.load(path)
    if task == "regression":
        return driftree.DynamicModelTreeRegressor(follow_target=False)
    return driftree.DynamicModelTreeClassifier()


def _read_schema(path: Path) -> dict[str, str]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if type(found) is not dict or not all(type(kind) is str for kind in found.values()):
        raise ValueError(
            f"{path} must be a JSON object that maps features to number, text or boolean"
        )
    return found


def _read_config(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ValueError(f"--config takes name=value, got {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def _summary(running: KafkaStream) -> str:
    counts = running.joined.counts
    figure = "mean absolute error" if running.joined.is_number else "share right"
    return (
        f"driftree: {running.done:,} messages: {counts['rows']:,} rows predicted, "
        f"{counts['learnt']:,} learnt, {counts['dead']:,} dead letters, {counts['changes']:,} "
        f"changes of the tree; {figure} {running.joined.quality.mean:.4g}"
    )
