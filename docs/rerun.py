"""Rerun the examples of a page of the documentation, and write what they print into it.

    python docs/rerun.py docs/reading.md

Pictures that the examples save land in the folder docs/pictures. `make guide` does it for the pages
that need data; the tests hold every page to what its examples print.
"""

import contextlib
import doctest
import io
import os
import sys
import traceback
from pathlib import Path


def rerun(page: Path) -> None:
    """Write a page with the output of each example replaced by what it prints now."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    examples = doctest.DocTestParser().get_examples(text)
    pictures = page.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    with contextlib.chdir(pictures):
        outputs = run(examples)
    for example, output in zip(reversed(examples), reversed(outputs), strict=True):
        first = example.lineno + example.source.count("\n")
        last = first + example.want.count("\n")
        lines[first:last] = output.splitlines(keepends=True)
    page.write_text("".join(lines), encoding="utf-8")


def run(examples: list[doctest.Example]) -> list[str]:
    """Return what each example prints, or its exception as doctest writes it."""
    names: dict[str, object] = {"__name__": "__main__"}
    outputs = []
    for example in examples:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(example.source, "<page>", "single"), names)
            except Exception as error:
                if example.exc_msg is None:
                    raise
                last = "".join(traceback.format_exception_only(error))
                out.write(f"Traceback (most recent call last):\n    ...\n{last}")
        outputs.append(out.getvalue())
    return outputs


if __name__ == "__main__":
    if folder := os.environ.get("DRIFTREE_DATA"):
        os.environ["DRIFTREE_DATA"] = str(Path(folder).resolve())  # the examples run elsewhere
    for name in sys.argv[1:]:
        rerun(Path(name))
