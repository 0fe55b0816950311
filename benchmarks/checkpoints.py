"""What does a checkpoint cost? Its bytes, and the time to write it, fsyncs included, and to resume.

    python benchmarks/checkpoints.py [FOLDER]

FOLDER is on the disk that is to be measured; a temporary one if not given. Streams whose data are
not in DRIFTREE_DATA are left out. The median of 20 is printed, as a table for docs/checkpoints.md.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from page import markdown

from driftree import Checkpointer, DynamicModelTreeClassifier
from driftree.evaluate import prequential
from driftree.streams import drifting_agrawal, hyperplane, load_data_set
from driftree.streams.datasets import data_folder

N_TIMES = 20
HEAD = ("stream", "rows", "inputs", "nodes", "KB", "write, ms", "resume, ms")


def streams() -> Iterator[tuple[str, Any]]:
    """Yield names and streams."""
    folder = data_folder()
    if folder is not None and (folder / "electricity.csv.gz").exists():
        data = load_data_set("electricity")
        places = range(0, data.n_rows, 100)
        yield "electricity", [(data.X[i : i + 100], data.y[i : i + 100]) for i in places]
    yield "drifting Agrawal", drifting_agrawal(100_000)
    yield "hyperplane, 50 features", hyperplane(100_000, n_features=50)


def measure(name: str, stream: Any, folder: Path) -> list[str]:
    """Let a tree learn a stream, then write and read checkpoints of its evaluation at the end."""
    model = DynamicModelTreeClassifier()
    with Checkpointer(folder / "run", every=10**9) as checkpointer:
        records = list(prequential(model, stream, checkpointer=checkpointer))
        found = checkpointer.resume()
    assert found is not None
    writing, reading = [], []
    with Checkpointer(folder / "timed", keep=2) as checkpointer:
        for i in range(N_TIMES):
            start = time.perf_counter()
            path = checkpointer.commit(found.model, i, found.metrics)
            middle = time.perf_counter()
            checkpointer.resume()
            writing.append(middle - start)
            reading.append(time.perf_counter() - middle)
    n_inputs = int(model.n_features_in_)
    figures = [path.stat().st_size / 1e3, 1e3 * median(writing), 1e3 * median(reading)]
    counts = [records[-1].n_rows, n_inputs, model.n_nodes_]
    return [name, *(f"{n:,}" for n in counts), *(f"{figure:,.0f}" for figure in figures)]


def main() -> None:
    """Print the table."""
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        rows = [
            measure(name, stream, Path(folder, str(i)))
            for i, (name, stream) in enumerate(streams())
        ]
    print(markdown(HEAD, rows), end="")


if __name__ == "__main__":
    main()
