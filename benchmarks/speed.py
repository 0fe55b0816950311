"""How fast do the trees learn? Rows per second of processor time, side by side with their peers.

One process, one thread, one core. Every row is predicted, then learnt. The learners take turns:
each takes the next block of the stream, then all of them the block after it. A ratio compares the
rows per second of a learner and of River's Hoeffding tree (nba; where numbers are predicted, its
adaptive regression tree) on the same block; the tables show its median and its range over the
blocks, so a machine whose speed varies hurts little. The range also shows the trees growing, as
deep as they like.

    python benchmarks/speed.py
    python benchmarks/speed.py --quick --streams sea,agrawal --modes dict --json speed.json

Modes: `dict` calls predict_one and learn_one with a dict per row. `batch1` to `batch1000` hand over
batches of so many rows, to predict and then to learn: NumPy arrays (predict, partial_fit), for
River's linear model data frames (predict_many, learn_many). River's and CapyMOA's trees know single
rows only: whoever has a batch loops over it, so they race once and stand for every mode. Slow
learners are given the first rows of each block only; the JSON says how many. Their trees are
smaller for it, and accuracy is over the rows that a learner was given.

Rows are made ready before the clock starts, each in the form that its learner takes. Features are
scaled to [0, 1] in advance, as the paper does; the first 2000 rows warm up and are not timed.
CapyMOA is timed if it is installed. Its processor time includes Java's compiler and collector; so
that most is compiled, other trees of its first learn some rows of the stream.
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.progress import Progress
from speed_learners import (
    BASE,
    LEARNERS,
    MODES,
    NUMBER_BASE,
    NUMBER_LEARNERS,
    Contestant,
    Learner,
    choose_contestants,
    load_capymoa,
)
from speed_output import print_table, tabulate, tabulate_targets, write_json
from speed_plot import STREAMS_IN_PLOT, draw_plot
from speed_results import Result, list_targets
from speed_streams import BATCH_ROWS, STREAMS, WARM_UP_ROWS, cut_blocks, why_missing

from driftree.evaluate import score_numbers

JAVA_WARM_UP_BLOCKS = 5


# ---------------------------------------------------------------------- the race
def race(
    stream: str,
    contestants: Sequence[Contestant],
    block_rows: int,
    n_blocks: int,
    report: Callable[[], object] = lambda: None,
) -> list[Result]:
    """Let all learn one stream, a block each in turn."""
    models = []
    seconds: list[list[float]] = [[] for _ in contestants]
    scores: list[list[float]] = [[] for _ in contestants]
    for i, block in enumerate(cut_blocks(stream, block_rows * n_blocks, n_blocks)):
        if i == 0:
            models = [contestant.learner.build(block) for contestant in contestants]
        gc.unfreeze()
        gc.collect()
        order = np.roll(range(len(contestants)), -i)  # nobody is always first
        for number in order.tolist():
            contestant = contestants[number]
            form = contestant.form()
            rows = block.head(contestant.count_rows(len(block.y)))
            feed = form.make(rows, contestant.batch_rows())
            if i == 0:
                form.teach(models[number], feed)
                continue
            gc.freeze()  # or one learner pays for searching what the others hold
            begin = time.process_time()
            predicted = form.walk(models[number], feed)
            duration = time.process_time() - begin
            if i > 1:
                seconds[number].append(duration)
                scores[number].append(score(np.hstack(predicted), rows.y, block.n_classes))
        report()
    return [
        Result(
            stream=stream,
            n_features=block.X.shape[1],
            n_classes=block.n_classes,
            learner=contestant.name,
            mode=contestant.mode,
            block_rows=contestant.count_rows(block_rows),
            seconds=seconds[number],
            accuracy=fmean(scores[number]),
            n_leaves=contestant.learner.count_leaves and contestant.learner.count_leaves(model),
        )
        for number, (contestant, model) in enumerate(zip(contestants, models, strict=True))
    ]


def score(predicted: NDArray[Any], y: NDArray[Any], n_classes: int) -> float:
    """Return the accuracy; of numbers, R²."""
    return float(np.mean(predicted == y)) if n_classes else score_numbers(y, predicted).r2


def run(options: argparse.Namespace, console: Console) -> list[Result]:
    """Race on all streams, and show how far it is."""
    wanted = {*options.learners, BASE, NUMBER_BASE}
    learners = {name: own for name, own in LEARNERS.items() if name in wanted}
    numbers = {name: own for name, own in NUMBER_LEARNERS.items() if name in wanted}
    capymoa: dict[str, Learner] = {}
    if "CapyMOA" in options.learners:
        try:
            capymoa = load_capymoa()
        except ImportError as error:
            console.print(str(error), soft_wrap=True)
    of_labels = choose_contestants(learners | capymoa, options.modes)
    of_numbers = choose_contestants(numbers, options.modes)
    # No thread that draws by itself: processor time counts all threads of the process.
    progress = Progress(console=console, auto_refresh=False, disable=not console.is_terminal)
    results: list[Result] = []
    with progress:
        bar = progress.add_task("", total=len(options.streams) * (options.blocks + 2))
        for stream in options.streams:
            if why_missing(stream):
                console.print(why_missing(stream), soft_wrap=True)
                continue
            progress.update(bar, description=stream, refresh=True)
            rows = options.rows or STREAMS[stream].block_rows
            contestants = of_numbers if STREAMS[stream].has_numbers else of_labels
            if capymoa and contestants is of_labels:
                race(stream, choose_contestants(capymoa, ()), min(rows, 2000), JAVA_WARM_UP_BLOCKS)
            results += race(
                stream,
                contestants,
                rows,
                options.blocks,
                lambda: progress.update(bar, advance=1, refresh=True),
            )
            if not console.is_terminal:
                console.print(f"{stream}: done")
    return results


# ---------------------------------------------------------------------- command line
def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    learners = [*LEARNERS, *NUMBER_LEARNERS, "CapyMOA"]
    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--modes", type=names(MODES), default=list(MODES))
    parser.add_argument(
        "--learners",
        type=names(learners),
        default=learners,
        help=f"{BASE}, of numbers {NUMBER_BASE}, always race",
    )
    parser.add_argument("--quick", action="store_true", help="few rows: about a minute in all")
    parser.add_argument("--rows", type=int, help="rows of a block, a multiple of 1000")
    parser.add_argument("--blocks", type=int, help="turns that each learner gets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw rows/s against features")
    options = parser.parse_args(arguments)
    if options.rows is None and options.quick:
        options.rows = BATCH_ROWS
    if options.blocks is None:
        options.blocks = 3 if options.quick else 20
    if options.blocks < 1:
        parser.error(f"--blocks must be at least 1, but is {options.blocks}")
    if options.rows is not None and (options.rows < 1 or options.rows % BATCH_ROWS):
        parser.error(f"--rows must be a multiple of {BATCH_ROWS}, but is {options.rows}")
    if options.plot and not set(options.streams) & set(STREAMS_IN_PLOT):
        parser.error(f"--plot needs one of the streams {', '.join(STREAMS_IN_PLOT)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_arguments(arguments)
    if hasattr(os, "sched_setaffinity"):  # before Java starts, which then knows of one core only
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    messages = Console(stderr=True)
    results = run(options, messages)
    targets = list_targets(results)
    print_table(tabulate(results))
    if targets:
        print_table(tabulate_targets(targets))
    if options.quick:
        messages.print("quick: the trees have hardly grown; the whole benchmark judges the targets")
    if options.json:
        sizes = {"blocks": options.blocks, "warm_up_rows": WARM_UP_ROWS, "quick": options.quick}
        write_json(options.json, sizes, results, targets)
    if options.plot:
        draw_plot(options.plot, results)


if __name__ == "__main__":
    main()
