"""`driftree predict`, `explain`, `learn` and `export`: commands for a model file."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from driftree.cli.run import (
    Drop,
    MaxRows,
    NoHeader,
    OnBadRow,
    columns_in,
    print_findings,
)
from driftree.cli.screen import consoles, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from driftree.evaluate.known_rows import KnownRows
    from driftree.streams import Stream

LEVEL = 0.9  # of intervals
ModelFile = Annotated[Path, typer.Argument(help="The model file, such as model.dmt.")]
RowsFile = Annotated[
    str, typer.Argument(help="A CSV, JSON Lines, Parquet or Feather file, or - for stdin.")
]
Words = Annotated[
    str,
    typer.Option("--text", help="Columns whose words the model has learnt, separated by commas."),
]


def predict(
    model: ModelFile,
    rows: RowsFile,
    text: Words = "",
    no_header: NoHeader = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A CSV file to write; by default stdout.")
    ] = None,
) -> None:
    """Predict the rows of a file: one line of CSV per row, in the same order.

    Labels come with the probability of each, numbers with a 90 % prediction interval (or with
    their quantiles). Columns that the model does not know are ignored.
    """
    with one_line(), _advising("fix the row"):
        known = _open_model(model, text)
        _check_rows(rows)
        _match_by_name(known.model)
        stream = known.open(rows, header=not no_header)
        head, ask = _questions(known)
        with _writing(out) as file:
            writer = csv.writer(file, lineterminator="\n")
            is_begun = False
            for X, _ in _quietly(known, stream):
                if not is_begun:  # not before the first rows have been read
                    _tell_lacking(known, stream)
                    writer.writerow(head)
                    is_begun = True
                writer.writerows(ask(X))
            if not is_begun:
                writer.writerow(head)


def learn(
    model: ModelFile,
    rows: RowsFile,
    target: Annotated[
        str | None,
        typer.Option(
            help="The target's column; by default the one called target, or else the last."
        ),
    ] = None,
    text: Words = "",
    drop: Drop = "",
    no_header: NoHeader = False,
    max_rows: MaxRows = None,
    on_bad_row: OnBadRow = "stop",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Another file for the updated model."),
    ] = None,
) -> None:
    """Learn the rows of a file and save the model; if a row is malformed, nothing changes.

    Known columns are read as the model knows them, new ones become features, unless --drop names
    them.
    """
    from driftree.learn.validation import list_names

    console, _ = consoles()
    with one_line(), _advising("fix the row, or read with --on-bad-row skip"):
        if out is None and Path(f"{model}.journal").exists():
            raise ValueError(
                f"{model} is served, and {model}.journal may hold rows that are not in it: learn "
                "through the server, or give --out"
            )
        known = _open_model(model, text)
        _check_rows(rows)
        if out is not None and (out.is_dir() or not out.parent.is_dir()):
            raise ValueError(
                f"the model cannot be saved as {out}: name a file in a folder that exists"
            )
        own = known.model
        n_before, n_changes = own.n_rows_seen_, len(_events(own))
        is_number = not hasattr(own, "classes_")
        known_labels = set(_labels(own))
        stream = known.open(
            rows,
            target=target,
            has_target=True,
            header=not no_header,
            on_bad_row=on_bad_row,
            drop=columns_in(drop),
            n_rows=max_rows,
            task="regression" if is_number else None,
        )
        is_told = False
        for X, y in _quietly(known, stream):
            if not is_told and stream.findings is not None:
                print_findings(stream.findings)
                _tell_lacking(known, stream)
                new = known.unknown(stream)
                if new:
                    console.print(f"new to the model: {list_names(new)}", soft_wrap=True)
            is_told = True
            labels = y if is_number else known.labels(y)
            if isinstance(X, list):
                for x, label in zip(X, labels.tolist(), strict=True):
                    own.learn_one(x, label)
            else:
                own.learn_many(X, labels)
        _tell_skipped(stream)
        new = [label for label in _labels(own) if label not in known_labels]
        if new:
            console.print(f"new labels: {list_names(new)}", soft_wrap=True)
        own.save(out or model)
        n_new = own.n_rows_seen_ - n_before
        events = _events(own)[n_changes:]
        console.print(
            f"{out or model}: {n_new:,} rows learnt, {own.n_rows_seen_:,} in all; "
            f"{len(events)} change{'' if len(events) == 1 else 's'}, now "
            f"{own.n_leaves_} lea{'f' if own.n_leaves_ == 1 else 'ves'}",
            soft_wrap=True,
        )
        for told in (*events[-3:], *_drifts(own, n_before)[-3:]):
            console.print(f"- {told}")


def explain(
    model: ModelFile,
    row: Annotated[
        list[str], typer.Argument(help="name=value for each feature, or one JSON object.")
    ],
    text: Words = "",
    counterfactual: Annotated[
        bool,
        typer.Option(
            "--counterfactual", help="Also show which few changes would change the prediction."
        ),
    ] = False,
    target: Annotated[str | None, typer.Option(help="The wanted label.")] = None,
    below: Annotated[float | None, typer.Option(help="The wanted number: below this.")] = None,
    above: Annotated[float | None, typer.Option(help="The wanted number: above this.")] = None,
    fixed: Annotated[
        str, typer.Option(help="Features that may not change, separated by commas.")
    ] = "",
) -> None:
    """Show what a model predicts for one row, and why; features not given are missing."""
    console, _ = consoles()
    asks = counterfactual or any(one is not None for one in (target, below, above))
    with one_line():
        if fixed and not asks:
            raise ValueError(
                "--fixed is for another prediction: add --counterfactual, --target, --below or "
                "--above"
            )
        known = _open_model(model, text)
        own = known.model
        if not hasattr(own, "explain_one"):
            raise ValueError(
                f"{model} holds a {type(own).__name__}, which cannot explain its predictions"
            )
        x = known.row(_read_row(row))
        console.print(str(own.explain_one(x)), soft_wrap=True)
        if asks:
            wish = {"target": _label_of(own, target), "below": below, "above": above}
            for way in _ways(own, x, fixed=columns_in(fixed), **wish):
                console.print(f"\n{way}", soft_wrap=True)


def _labels(model: Any) -> list[Any]:
    """Return the labels of a model; of a regressor, none."""
    return model.classes_.tolist() if hasattr(model, "classes_") else []


def _label_of(model: Any, text: str | None) -> Any:
    """Return the label that a text stands for."""
    if text is None or not hasattr(model, "classes_"):
        return text
    from driftree.evaluate.known_rows import by_text

    labels = model.classes_.tolist()
    known = by_text(labels)
    if text not in known:
        given = ", ".join(map(str, labels))
        raise ValueError(f"there is no label {text!r}: choose one of {given}")
    return known[text]


def _ways(model: Any, x: Any, **wish: Any) -> list[Any]:
    """Return several ways to another prediction; for a forest, one."""
    if not hasattr(model, "classes_") and wish["below"] is wish["above"] is wish["target"] is None:
        raise ValueError("give the wanted number: --below 200, or --above 100")
    if hasattr(model, "counterfactuals"):
        return list(model.counterfactuals(x, **wish))
    return [model.counterfactual(x, **wish)]


# ---------------------------------------------------------------------- parts
def _check_rows(rows: str) -> None:
    """Raise if there is no file to read."""
    if rows == "-" or Path(rows).is_file():
        return
    what = (
        f"{rows!r} is not a regular file" if Path(rows).exists() else f"there is no file {rows!r}"
    )
    raise ValueError(
        f"{what}: give a CSV, JSON Lines, Parquet or Feather file, or - for standard input"
    )


@contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Say what to do about a malformed row: a model knows what its columns are."""
    from driftree.streams import BadRowError

    try:
        yield
    except BadRowError as error:
        raise ValueError(f"{error.row} ({advice})") from None


def _match_by_name(model: Any) -> None:
    """Let a model that is not saved take any order of columns, and rows that lack some."""
    for name in ("n_features_in_", "feature_names_in_"):
        vars(model).pop(name, None)


def _tell_skipped(stream: Stream) -> None:
    if stream.bad_rows.count:
        typer.echo(f"{stream.bad_rows.count:,} malformed rows were skipped, the first:", err=True)
        for row in stream.bad_rows.first[:3]:
            typer.echo(f"  {row}", err=True)


def _open_model(path: Path, text: str) -> KnownRows:
    import driftree
    from driftree.evaluate.known_rows import KnownRows
    from driftree.streams.formats import is_model

    if path.is_file() and not is_model(path):
        raise ValueError(
            f"{path} is not a model file: give the model.dmt written by driftree run or serve"
        )
    model = driftree.load(path)
    if not model.__sklearn_is_fitted__():
        raise ValueError(f"{path} has learnt nothing yet")
    return KnownRows(model, columns_in(text))


def _read_row(words: Sequence[str]) -> dict[str, str]:
    """Read name=value words, or one JSON object, as cells of text.

    Examples
    --------
    >>> _read_row(["age=31", "car=van"]), _read_row(['{"age": 31, "car": null}'])
    ({'age': '31', 'car': 'van'}, {'age': '31', 'car': ''})
    """
    from driftree.streams.formats import JsonError, JsonReader

    if len(words) == 1 and words[0].lstrip().startswith("{"):
        header: list[str] = []
        try:
            [cells] = JsonReader(iter([words[0].replace("\n", " ")]), header)
        except JsonError as error:
            raise ValueError(f"the row {error}") from None
        return dict(zip(header, cells, strict=True))
    pairs = [word.partition("=") for word in words]
    for word, (name, sign, _) in zip(words, pairs, strict=True):
        if not sign or not name:
            raise ValueError(
                f"a row is name=value for each feature, or one JSON object such as "
                f"{json.dumps({'age': 31})}, got {word!r}"
            )
    row: dict[str, str] = {}
    for name, _, value in pairs:
        if name in row:
            raise ValueError(
                f"{name!r} is given twice, as {row[name]!r} and {value!r}: give it once"
            )
        row[name] = value
    return row


def _questions(known: KnownRows) -> tuple[list[str], Any]:
    """Return the header of predictions, and the function that computes them."""
    model = known.model
    if hasattr(model, "classes_"):
        labels = model.classes_.tolist()
        head = ["prediction", *(f"P({label})" for label in labels)]
        return head, lambda X: _label_rows(model, X, labels)
    if getattr(model, "loss", None) == "quantile":
        quantiles = model._fitted.parameters.quantiles
        head = ["prediction", *(f"quantile {quantile:g}" for quantile in quantiles)]
        return head, lambda X: [[_middle(row), *row] for row in model.predict_quantiles(X).tolist()]
    if not hasattr(model, "predict_interval"):
        return ["prediction"], lambda X: [[number] for number in _numbers(model, X)]
    return ["prediction", "low", "high"], lambda X: _number_rows(model, X)


def _middle(row: Sequence[float]) -> float:
    return row[len(row) // 2]


def _label_rows(model: Any, X: Any, labels: list[Any]) -> list[list[Any]]:
    import numpy as np

    if isinstance(X, list):
        shares = [[proba[label] for label in labels] for proba in map(model.predict_proba_one, X)]
    else:
        columns = model.predict_proba_many(X)
        shares = np.column_stack([columns[label] for label in labels]).tolist()
    codes = model._labels.decide(np.array(shares).reshape(len(shares), -1))
    return [[labels[code], *row] for code, row in zip(codes, shares, strict=True)]


def _numbers(model: Any, X: Any) -> list[float]:
    if isinstance(X, list):
        return [model.predict_one(x) for x in X]
    return list(model.predict_many(X).tolist())


def _number_rows(model: Any, X: Any) -> list[list[float]]:
    if isinstance(X, list):
        ends = [model.predict_interval_one(x, LEVEL) for x in X]
    else:
        ends = model.predict_interval(X, LEVEL).tolist()
    return [[number, *pair] for number, pair in zip(_numbers(model, X), ends, strict=True)]


def _events(model: Any) -> list[Any]:
    return list(getattr(model, "events_", []))


def _drifts(model: Any, since: int) -> list[Any]:
    from driftree.explain.changes import can_tell

    return list(model.drifts(since=since)) if can_tell(model) else []


def _quietly(known: KnownRows, stream: Stream) -> Iterator[tuple[Any, Any]]:
    """Yield batches without the warnings about what is printed anyway."""
    from driftree.streams import BadRowsWarning, InputWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        warnings.simplefilter("ignore", BadRowsWarning)
        yield from known.batches(stream)


def _tell_lacking(known: KnownRows, stream: Stream) -> None:
    from driftree.learn.validation import list_names

    lacking = known.lacking(stream)
    if lacking:
        typer.echo(
            f"driftree: {stream.name} lacks {list_names(lacking)}: missing in all rows", err=True
        )


@contextmanager
def _writing(out: Path | None) -> Iterator[TextIO]:
    """Open a file that is written atomically, or standard output."""
    if out is None:
        yield sys.stdout
        return
    from driftree.learn.storage.atomic import whole_text

    with whole_text(out) as file:
        yield file


# ---------------------------------------------------------------------- export
def export(
    model: Annotated[Path, typer.Argument(help="The model file, such as model.dmt.")],
    to: Annotated[
        Literal["onnx", "python", "c", "sql"],
        typer.Option(help="A graph for ONNX runtimes, or a function that needs no library."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write; without it, code is printed."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the function; for SQL, of the table to read.")
    ] = None,
    dtype: Annotated[
        Literal["float64", "float32"], typer.Option(help="ONNX: type of inputs and outputs.")
    ] = "float64",
    interval: Annotated[
        float | None,
        typer.Option(help="Regressors: also predict an interval that contains this share of rows."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
) -> None:
    """Export a model as ONNX, or as a function in Python, C or SQL.

    The export predicts what the model predicts now, and does not learn; docs/export.md says how to
    call it.
    """
    with one_line():
        from driftree.export import to_code, to_onnx
        from driftree.learn.storage.atomic import replace_file
        from driftree.stored import load

        if to == "onnx" and out is None:
            raise ValueError("an ONNX graph cannot be shown as text: name a file, --out model.onnx")
        if out is not None and out.exists() and not overwrite:
            raise ValueError(f"{out} exists: add --overwrite to replace it, or another --out")
        found = load(model)
        if to == "onnx":
            data = to_onnx(found, dtype=dtype, interval=interval).SerializeToString()
        else:
            data = to_code(found, to, name=name, interval=interval).encode()
        if out is None:
            typer.echo(data.decode(), nl=False)
        else:
            replace_file(out, [data])
