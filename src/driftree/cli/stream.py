"""`driftree stream`: a model over Kafka topics."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftree.cli.screen import one_line

if TYPE_CHECKING:
    from driftree.scale.kafka import KafkaStream

MODEL_FILE = "model.dmt"


def stream(
    folder: Annotated[
        Path, typer.Argument(help="Where the checkpoints are; model.dmt is written at the end.")
    ],
    brokers: Annotated[str, typer.Option(help="The cluster, such as kafka1:9092,kafka2:9092.")],
    rows: Annotated[
        str, typer.Option("--in", help="Topic of the rows, and of labels without a topic.")
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
        float, typer.Option(min=0, help="Seconds between a row and its label, at most.")
    ] = 3600.0,
    schema: Annotated[
        Path | None,
        typer.Option(help="JSON file: the features allowed, to number, text or boolean."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Messages between checkpoints.")] = 10_000,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds that an idle partition holds up the others.")
    ] = 0.1,
    config: Annotated[
        list[str] | None, typer.Option(help="A setting of librdkafka, as name=value; repeat it.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for Prometheus, on 127.0.0.1.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the present end of the topics.")
    ] = False,
) -> None:
    """Predict and learn what comes through Kafka topics: each row is learnt exactly once.

    Killed at any moment, the same command goes on from its last checkpoint; docs/kafka.md has the
    messages and the guarantees. Ctrl-C and SIGTERM end it with a checkpoint.
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
            _run(running, metrics_port, until_end=until_end)
            running.model.save(folder / MODEL_FILE)
            typer.echo(_tell(running), err=True)


def _run(running: KafkaStream, metrics_port: int | None, *, until_end: bool) -> None:
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
        raise ValueError(f"{path} must be a JSON object of features to number, text or boolean")
    return found


def _read_config(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ValueError(f"--config takes name=value, got {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def _tell(running: KafkaStream) -> str:
    counts = running.joined.counts
    figure = "mean absolute error" if running.joined.is_number else "share right"
    return (
        f"driftree: {running.done:,} messages: {counts['rows']:,} rows predicted, "
        f"{counts['learnt']:,} learnt, {counts['dead']:,} dead letters, {counts['changes']:,} "
        f"changes of the tree; {figure} {running.joined.quality.mean:.4g}"
    )
