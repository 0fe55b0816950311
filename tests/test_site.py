"""The site lists every page; its notebooks run, and print what is written in them."""

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def load(path):
    """Import a script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(notebook):
    """Return what each cell prints: its text, not its pictures, whose size depends on fonts."""
    return [
        [
            re.sub(r"(<Figure size) \S+", r"\1", output.get("text") or output["data"]["text/plain"])
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_written_in_it(path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own
        found = load(path.parent / "make.py").run(path)
    assert text_of(found) == text_of(nbformat.read(path, as_version=4))


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    named = set(re.findall(r" (\S+\.(?:md|ipynb))$", menu, flags=re.MULTILINE))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages | {f"notebooks/{page.name}" for page in NOTEBOOKS} <= named
