"""What does keeping a history cost? Processor time and memory of learning with it and without.

One process, one thread, one core. Two equal learners, one of them with `keep_history=False`, take
turns, block by block of the same stream, and only learn. The cost is the ratio of their seconds in
all, less one; with it goes the median over the blocks and the range of its middle half, which a
machine whose speed varies hurts little. The history is largest in its first 50,000 rows, which are
timed, too.

    python benchmarks/history.py
    python benchmarks/history.py --quick --streams sea --modes dict --json history.json

Memory is what pickling the history takes, beside what the tree's own arrays take.
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import json
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from options import names
from rich.console import Console
from rich.table import Table
from speed import BATCH_ROWS, MODES, STREAMS, Block, cut_blocks, teach_rows

from driftree import DynamicModelTreeClassifier

SETTINGS: dict[str, Callable[..., DynamicModelTreeClassifier]] = {
    "default": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
}


class Result(NamedTuple):
    """Seconds per block with a history and without, and bytes of the history and of the tree."""

    stream: str
    mode: str
    setting: str
    seconds_with: list[float]
    seconds_without: list[float]
    history_bytes: int
    tree_bytes: int
    n_events: int
    n_nodes: int

    def cost(self) -> float:
        """Return the share of the time of learning that the history adds."""
        return sum(self.seconds_with) / sum(self.seconds_without) - 1

    def blocks(self) -> list[float]:
        """Return the same for each block."""
        pairs = zip(self.seconds_with, self.seconds_without, strict=True)
        return [own / other - 1 for own, other in pairs]


def teach_batches(learner: Any, block: Block) -> None:
    """Learn a block in batches."""
    for start in range(0, len(block.y), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        learner.partial_fit(block.X[rows], block.y[rows])


def race(stream: str, mode: str, setting: str, n_rows: int, n_blocks: int) -> Result:
    """Let both learn the stream, a block each in turn."""
    learners = {keep: SETTINGS[setting](keep_history=keep) for keep in (True, False)}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    teach = teach_rows if mode == "dict" else teach_batches
    for i, block in enumerate(cut_blocks(stream, n_rows, n_blocks)):
        for keep in (True, False) if i % 2 else (False, True):
            gc.collect()  # or one pays for the other's litter
            begin = time.process_time()
            teach(learners[keep], block)
            seconds[keep].append(time.process_time() - begin)
    model = learners[True]
    return Result(
        stream,
        mode,
        setting,
        seconds[True],
        seconds[False],
        len(pickle.dumps(model._tree.history)),
        model.memory_usage(),
        len(model.events_),
        model.n_nodes_,
    )


def tabulate(results: Sequence[Result]) -> Table:
    """Lay out the costs."""
    table = Table(title="Learning with a history, against without", title_justify="left")
    for heading in ("stream", "mode", "setting"):
        table.add_column(heading)
    for heading in ("time", "median block (middle half)", "history MB", "tree MB", "events"):
        table.add_column(heading, justify="right")
    for result in results:
        low, _, high = quantiles(result.blocks())
        table.add_row(
            result.stream,
            result.mode,
            result.setting,
            f"{result.cost():+.1%}",
            f"{median(result.blocks()):+.1%} ({low:+.1%} to {high:+.1%})",
            f"{result.history_bytes / 1e6:.2f}",
            f"{result.tree_bytes / 1e6:.2f}",
            f"{result.n_events:,}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--modes", type=names(MODES), default=list(MODES))
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--blocks", type=int, default=40, help="turns that each learner gets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    n_rows = (1 if options.quick else 5) * options.blocks * BATCH_ROWS
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    gc.freeze()  # what the imports left behind need not be searched in every collection
    console = Console(stderr=True)
    results = []
    for stream in options.streams:
        for mode in options.modes:
            for setting in SETTINGS:
                results.append(race(stream, mode, setting, n_rows, options.blocks))
                console.print(f"{stream} {mode} {setting}: done")
    Console(width=max(Console().width, 110)).print(tabulate(results))
    if options.json:
        records = [result._asdict() | {"cost": result.cost()} for result in results]
        options.json.write_text(json.dumps({"rows": n_rows, "results": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
