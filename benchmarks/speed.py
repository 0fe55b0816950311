"""How fast do the trees learn? Rows per second of processor time, side by side with River's trees.

One process, one thread, one core. Every row is predicted, then learnt. The learners take turns:
each takes the next block of the stream, then all of them the block after it. A ratio compares two
learners on the same block; the table shows its median and its range over the blocks, so a machine
whose speed varies hurts little. The range also shows the trees growing, as deep as they like.

    python benchmarks/speed.py
    python benchmarks/speed.py --quick --streams sea --modes dict --json speed.json

Modes: `dict` calls predict_one and learn_one with a dict per row. `batch1000` hands driftree NumPy
arrays of 1000 rows, to predict and then to learn (partial_fit); River's trees know single rows
only, so there they loop over the same 1000 rows, first to predict, then to learn. The dicts are
made before the clock starts. Features are scaled to [0, 1] in advance, as the paper does; the
first 2000 rows warm up and are not timed.
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from river.tree import HoeffdingTreeClassifier

import driftree
from driftree import streams
from driftree.streams import AGRAWAL_FEATURES

SEED = 1
BATCH_ROWS = 1000
WARM_UP_ROWS = 2 * BATCH_ROWS
MODES = ("dict", "batch1000")


class Block(NamedTuple):
    """Rows of a stream, as arrays and as dicts with plain numbers."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    rows: list[dict[str, float]]
    labels: list[int]


Walk = Callable[[Any, Block], list[Any]]  # returns the predictions, single or in arrays


# ---------------------------------------------------------------------- streams
Batches = Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]


def draw_agrawal(n_rows: int) -> Batches:
    """Draw loan applications whose rule changes three times, gradually: the trees are deep."""
    return streams.drifting_agrawal(n_rows, seed=SEED, width=n_rows // 10, perturbation=0.1)


def draw_hyperplane(n_rows: int, n_features: int) -> Batches:
    """Draw a hyperplane that moves as the paper's does: half of the weights, by 0.5 per row."""
    return streams.hyperplane(
        n_rows,
        seed=SEED,
        n_features=n_features,
        n_drifting=n_features // 2,
        magnitude=0.5,
        noise=0.1,
    )


STREAMS: dict[str, Callable[[int], Batches]] = {
    "sea": partial(streams.sea, seed=SEED),
    "agrawal": draw_agrawal,
    "hyperplane50": partial(draw_hyperplane, n_features=50),
}


def cut_blocks(name: str, n_rows: int, n_blocks: int) -> Iterator[Block]:
    """Yield two blocks to warm up, then those to time; only one at a time has dicts in memory."""
    features, labels = zip(*STREAMS[name](WARM_UP_ROWS + n_rows), strict=True)
    X, y = np.concatenate(features), np.concatenate(labels)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    names = AGRAWAL_FEATURES if name == "agrawal" else [f"x{j}" for j in range(X.shape[1])]
    cuts = [BATCH_ROWS, *range(WARM_UP_ROWS, len(y), n_rows // n_blocks)]
    for X_block, y_block in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        rows = [dict(zip(names, row, strict=True)) for row in X_block.tolist()]
        yield Block(X_block, y_block, rows, y_block.tolist())


# ---------------------------------------------------------------------- learners
def walk_rows(learner: Any, block: Block) -> list[Any]:
    """Predict a row, then learn it."""
    predicted = []
    for x, label in zip(block.rows, block.labels, strict=True):
        predicted.append(learner.predict_one(x))
        learner.learn_one(x, label)
    return predicted


def walk_batches(learner: Any, block: Block) -> list[Any]:
    """Predict a batch, then learn it."""
    predicted: list[Any] = []
    for start in range(0, len(block.y), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        predicted.append(learner.predict(block.X[rows]))
        learner.partial_fit(block.X[rows], block.y[rows])
    return predicted


def walk_batches_by_row(learner: Any, block: Block) -> list[Any]:
    """Predict the rows of a batch one at a time, then learn them one at a time."""
    predicted: list[Any] = []
    for start in range(0, len(block.y), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        predicted.extend(learner.predict_one(x) for x in block.rows[rows])
        for x, label in zip(block.rows[rows], block.labels[rows], strict=True):
            learner.learn_one(x, label)
    return predicted


def teach_rows(learner: Any, block: Block) -> None:
    """Learn rows without predicting them."""
    for x, label in zip(block.rows, block.labels, strict=True):
        learner.learn_one(x, label)


def teach_batch(learner: Any, block: Block) -> None:
    """Learn a batch without predicting it, since nothing can be predicted before the first."""
    learner.partial_fit(block.X, block.y)


class Learner(NamedTuple):
    """How a learner is made, and whether it takes whole batches."""

    build: Callable[[], Any]
    takes_batches: bool = True


LEARNERS = {
    "driftree default": Learner(driftree.DynamicModelTreeClassifier),
    "driftree paper": Learner(driftree.DynamicModelTreeClassifier.paper),
    "River nba": Learner(partial(HoeffdingTreeClassifier, leaf_prediction="nba"), False),
    "River mc": Learner(partial(HoeffdingTreeClassifier, leaf_prediction="mc"), False),
}
RIVALS = ("River nba", "River mc")


# ---------------------------------------------------------------------- the race
class Result(NamedTuple):
    """Seconds of processor time of one learner on one stream, block by block."""

    stream: str
    n_features: int
    mode: str
    learner: str
    block_rows: int
    seconds: list[float]
    accuracy: float
    n_leaves: int

    def rows_per_second(self) -> float:
        """Return the speed over all blocks."""
        return self.block_rows * len(self.seconds) / sum(self.seconds)


def race(
    stream: str, mode: str, n_rows: int, n_blocks: int, report: Callable[[], object]
) -> list[Result]:
    """Let all learners learn one stream, a block each in turn."""
    learners = {name: learner.build() for name, learner in LEARNERS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    n_hits = dict.fromkeys(learners, 0)
    n_features = 0
    for i, block in enumerate(cut_blocks(stream, n_rows, n_blocks)):
        order = list(learners)
        order = order[i % len(order) :] + order[: i % len(order)]  # nobody is always first
        for name in order:
            learner = learners[name]
            by_batch = mode != "dict" and LEARNERS[name].takes_batches
            if i == 0:
                (teach_batch if by_batch else teach_rows)(learner, block)
                continue
            walk: Walk = (
                walk_rows if mode == "dict" else walk_batches if by_batch else walk_batches_by_row
            )
            gc.collect()  # or one learner pays for another's litter
            begin = time.process_time()
            predicted = walk(learner, block)
            duration = time.process_time() - begin
            if i > 1:
                seconds[name].append(duration)
                n_hits[name] += int(np.count_nonzero(np.hstack(predicted) == block.y))
        n_features = block.X.shape[1]
        report()
    return [
        Result(
            stream=stream,
            n_features=n_features,
            mode=mode,
            learner=name,
            block_rows=n_rows // n_blocks,
            seconds=seconds[name],
            accuracy=n_hits[name] / n_rows,
            n_leaves=int(learner.n_leaves_ if hasattr(learner, "n_leaves_") else learner.n_leaves),
        )
        for name, learner in learners.items()
    ]


def compare(result: Result, rival: Result) -> list[float]:
    """Return how many times faster than the rival the learner is, block by block."""
    return [theirs / own for own, theirs in zip(result.seconds, rival.seconds, strict=True)]


# ---------------------------------------------------------------------- output
def show_ratios(ratios: Sequence[float]) -> str:
    """Say median and range."""
    low, middle, high = (f"{r:.{0 if r >= 99.5 else 1}f}" for r in summarise(ratios))
    return f"{middle} ({low} - {high})"


def summarise(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return least, median and greatest."""
    return min(ratios), median(ratios), max(ratios)


def tabulate(results: Sequence[Result]) -> Table:
    """Lay out the results, each learner beside both rivals of the same stream and mode."""
    table = Table(
        title="Rows per CPU-second, predict + learn; ratios: median over blocks (range)",
        title_justify="left",
    )
    for heading in ("stream", "mode", "learner"):
        table.add_column(heading)
    for heading in ("rows/s", *(f"x {rival}" for rival in RIVALS), "accuracy", "leaves"):
        table.add_column(heading, justify="right")
    for group in group_results(results):
        for result in group.values():
            ratios = [
                "1" if result.learner == rival else show_ratios(compare(result, group[rival]))
                for rival in RIVALS
            ]
            table.add_row(
                f"{result.stream} (m={result.n_features})",
                result.mode,
                result.learner,
                f"{result.rows_per_second():,.0f}",
                *ratios,
                f"{result.accuracy:.3f}",
                f"{result.n_leaves:,}",
            )
        table.add_section()
    return table


def group_results(results: Sequence[Result]) -> list[dict[str, Result]]:
    """Put results of the same stream and mode together, by the name of the learner."""
    groups: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        groups.setdefault((result.stream, result.mode), {})[result.learner] = result
    return list(groups.values())


def write_json(file: Path, options: argparse.Namespace, results: Sequence[Result]) -> None:
    """Write all figures, the seconds of each block included."""
    records = []
    for group in group_results(results):
        for result in group.values():
            record: dict[str, Any] = result._asdict()
            record["rows_per_second"] = result.rows_per_second()
            for rival in RIVALS:
                figures = summarise(compare(result, group[rival]))
                record[f"ratio to {rival}"] = dict(
                    zip(("min", "median", "max"), figures, strict=True)
                )
            records.append(record)
    environment = {
        "driftree": driftree.__version__,
        "river": version("river"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    rows = {"rows": options.rows, "blocks": options.blocks, "warm_up_rows": WARM_UP_ROWS}
    record = {**environment, **rows, "seed": SEED, "results": records}
    file.write_text(json.dumps(record, indent=1) + "\n")


# ---------------------------------------------------------------------- command line
def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--modes", type=names(MODES), default=list(MODES))
    parser.add_argument("--quick", action="store_true", help="fewer rows: about a minute in all")
    parser.add_argument("--rows", type=int, help="rows timed per stream and mode")
    parser.add_argument("--blocks", type=int, default=20, help="turns that each learner gets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    if options.rows is None:
        options.rows = (2 if options.quick else 5) * options.blocks * BATCH_ROWS
    step = options.blocks * BATCH_ROWS
    if options.blocks < 1 or options.rows < 1 or options.rows % step:
        parser.error(
            f"--rows must be a multiple of --blocks times {BATCH_ROWS}, both positive, "
            f"but they are {options.rows} and {options.blocks}"
        )
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_arguments(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    gc.freeze()  # what the imports left behind need not be searched in every collection
    console = Console(stderr=True)
    pairs = [(stream, mode) for stream in options.streams for mode in options.modes]
    # No thread that draws by itself: processor time counts all threads of the process.
    progress = Progress(console=console, auto_refresh=False, disable=not console.is_terminal)
    results: list[Result] = []
    with progress:
        bar = progress.add_task("", total=len(pairs) * (options.blocks + 2))
        for stream, mode in pairs:
            progress.update(bar, description=f"{stream} {mode}", refresh=True)
            results += race(
                stream,
                mode,
                options.rows,
                options.blocks,
                lambda: progress.update(bar, advance=1, refresh=True),
            )
            if not console.is_terminal:
                console.print(f"{stream} {mode}: done")
    width = max(Console().width, 128)  # rather wrapped lines than shortened figures
    Console(width=width).print(tabulate(results))
    if options.json:
        write_json(options.json, options, results)


if __name__ == "__main__":
    main()
