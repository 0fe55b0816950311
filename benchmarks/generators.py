"""How fast are the synthetic streams? Rows per second of processor time, side by side with River's.

One process, one thread, one core. For each stream, driftree and River take turns: each draws a
block of rows, then both draw the next one. A ratio compares the two on neighbouring blocks; the
table shows its median and its range, so a machine whose speed varies hurts little. A block of
driftree's is many times longer, so that both take about as long; generators are made before the
clock starts and draw a warm-up first.

    python benchmarks/generators.py
    python benchmarks/generators.py --quick --streams sea,led --batch-rows 10000 --json speed.json

driftree yields arrays of `--batch-rows` rows, River a dict per row. The parameters are the same on
both sides where both have them.
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from options import names
from rich.console import Console
from rich.table import Table
from river.datasets import synth

import driftree
from driftree import streams

SEED = 1
RIVER_BLOCK_ROWS = 10_000
FACTOR = 20  # a block of driftree's has so many times the rows of one of River's
ENDLESS = 10**12


class Pair(NamedTuple):
    """The same stream twice: driftree's in batches, and River's row by row."""

    ours: Callable[..., Iterator[Any]]
    rivers: Callable[[], Iterable[Any]]


STREAMS = {
    "sea": Pair(partial(streams.sea, noise=0.1), lambda: synth.SEA(noise=0.1, seed=SEED)),
    "agrawal": Pair(
        partial(streams.agrawal, perturbation=0.1),
        lambda: synth.Agrawal(perturbation=0.1, seed=SEED),
    ),
    "hyperplane": Pair(
        partial(streams.hyperplane, n_features=10, n_drifting=2, magnitude=0.001, noise=0.05),
        lambda: synth.Hyperplane(
            n_features=10, n_drift_features=2, mag_change=0.001, noise_percentage=0.05, seed=SEED
        ),
    ),
    "led": Pair(
        partial(streams.led, noise=0.1, n_irrelevant=17),
        lambda: synth.LED(noise_percentage=0.1, irrelevant_features=True, seed=SEED),
    ),
    "random_rbf": Pair(
        partial(streams.random_rbf, n_features=10, n_classes=2, n_centres=50, speed=0.001),
        lambda: synth.RandomRBFDrift(
            seed_model=SEED,
            seed_sample=SEED,
            n_classes=2,
            n_features=10,
            n_centroids=50,
            change_speed=0.001,
            n_drift_centroids=50,
        ),
    ),
    "stagger": Pair(streams.stagger, lambda: synth.STAGGER(seed=SEED)),
    "sine": Pair(
        partial(streams.sine, n_irrelevant=2), lambda: synth.Sine(has_noise=True, seed=SEED)
    ),
}


# ---------------------------------------------------------------------- the race
class Result(NamedTuple):
    """Seconds of processor time per row of both, block by block."""

    stream: str
    ours: list[float]
    rivers: list[float]

    def ratios(self) -> list[float]:
        """Return how many times faster driftree is, block by block."""
        return [theirs / own for own, theirs in zip(self.ours, self.rivers, strict=True)]


def time_rows(items: Iterator[Any], n_items: int, n_rows: int) -> float:
    """Draw items that hold so many rows; return the seconds per row."""
    gc.collect()  # or one side pays for the other's litter
    begin = time.process_time()
    for _ in islice(items, n_items):
        pass
    return (time.process_time() - begin) / n_rows


def race(stream: str, n_blocks: int, batch_rows: int) -> Result:
    """Let both draw a block each in turn; the first turn warms up."""
    pair = STREAMS[stream]
    ours = pair.ours(ENDLESS, batch_rows=batch_rows, seed=SEED)
    rivers = iter(pair.rivers())
    n_batches = max(1, RIVER_BLOCK_ROWS * FACTOR // batch_rows)
    result = Result(stream, [], [])
    for i in range(n_blocks + 1):
        turns = [
            (result.ours, partial(time_rows, ours, n_batches, n_batches * batch_rows)),
            (result.rivers, partial(time_rows, rivers, RIVER_BLOCK_ROWS, RIVER_BLOCK_ROWS)),
        ]
        for seconds, draw in turns if i % 2 else reversed(turns):  # nobody is always first
            duration = draw()
            if i:
                seconds.append(duration)
    return result


# ---------------------------------------------------------------------- output
def tabulate(results: Sequence[Result]) -> Table:
    """Lay out the results."""
    table = Table(
        title="Rows per CPU-second; ratio: median over blocks (range)", title_justify="left"
    )
    table.add_column("stream")
    for heading in ("driftree", "River", "ratio"):
        table.add_column(heading, justify="right")
    for result in results:
        ratios = result.ratios()
        table.add_row(
            result.stream,
            f"{1 / median(result.ours):,.0f}",
            f"{1 / median(result.rivers):,.0f}",
            f"{median(ratios):.1f} ({min(ratios):.1f} - {max(ratios):.1f})",
        )
    return table


def write_json(file: Path, options: argparse.Namespace, results: Sequence[Result]) -> None:
    """Write all figures, the seconds per row of each block included."""
    record = {
        "driftree": driftree.__version__,
        "river": version("river"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "blocks": options.blocks,
        "batch_rows": options.batch_rows,
        "seed": SEED,
        "results": [
            result._asdict() | {"median ratio": median(result.ratios())} for result in results
        ],
    }
    file.write_text(json.dumps(record, indent=1) + "\n")


# ---------------------------------------------------------------------- command line
def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--batch-rows", type=int, default=1000, help="rows per batch of driftree's")
    parser.add_argument("--blocks", type=int, default=20, help="turns that each side gets")
    parser.add_argument("--quick", action="store_true", help="5 blocks instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    if options.quick:
        options.blocks = 5
    if min(options.blocks, options.batch_rows) < 1:
        parser.error("--blocks and --batch-rows must be positive")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_arguments(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    gc.freeze()  # what the imports left behind need not be searched in every collection
    results = [race(stream, options.blocks, options.batch_rows) for stream in options.streams]
    Console().print(tabulate(results))
    if options.json:
        write_json(options.json, options, results)


if __name__ == "__main__":
    main()
