"""`driftree export`: a model for where there is no driftree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from driftree.cli.screen import one_line


def export(
    model: Annotated[Path, typer.Argument(help="The model file, such as model.dmt.")],
    to: Annotated[
        Literal["onnx", "python", "c", "sql"],
        typer.Option(help="A graph for ONNX runtimes, or a function that needs no library."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; code is shown without.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the function; of SQL, of the table that is read.")
    ] = None,
    dtype: Annotated[
        Literal["float64", "float32"], typer.Option(help="ONNX: of the numbers in and out.")
    ] = "float64",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Write a model as ONNX, or as a function in Python, C or SQL.

    What is written predicts what the model predicts now, and learns nothing; docs/export.md says
    how to call it.
    """
    with one_line():
        from driftree.export import to_code, to_onnx
        from driftree.learn.storage.atomic import replace_file
        from driftree.stored import load

        if to == "onnx" and out is None:
            raise ValueError("ONNX is no text to be shown: name a file, --out model.onnx")
        if out is not None and out.exists() and not overwrite:
            raise ValueError(f"{out} exists: add --overwrite to replace it, or another --out")
        found = load(model)
        if to == "onnx":
            data = to_onnx(found, dtype=dtype).SerializeToString()
        else:
            data = to_code(found, to, name=name).encode()
        if out is None:
            typer.echo(data.decode(), nl=False)
        else:
            replace_file(out, [data])
