"""Run the notebooks of the site, and write what they print into them.

    python docs/notebooks/make.py docs/notebooks/*.ipynb

A test runs them, too, and compares the text that they print.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with the output of every cell, as of now."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, record_timing=False, resources={"metadata": {"path": path.parent}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)  # which names the Python that ran it
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(run(Path(name)), name)
