"""What does keeping a history cost? Processor time and memory of learning with it.

One process, one thread, one core. The time that a learner spends on its history (samples, events,
and being woken up for them) is measured inside, and set against the rest of its time of learning:
over the whole stream, and over its first tenth, where samples are closest. Beside it an equal
learner with `keep_history=False` learns the same blocks in turn; the ratio of the two is another
view of the same cost, but two learners lie elsewhere in memory, which alone makes some percent of
difference either way.

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
from statistics import median
from typing import Any, NamedTuple

from options import names
from rich.console import Console
from rich.table import Table
from speed_learners import ARRAYS, DICTS, Form
from speed_streams import BATCH_ROWS, cut_blocks

from driftree import DynamicModelTreeClassifier
from driftree.learn.tree import Tree

STREAMS = ("sea", "agrawal", "hyperplane50")
FORMS: dict[str, Form] = {"dict": DICTS, "batch1000": ARRAYS}
SETTINGS: dict[str, Callable[..., DynamicModelTreeClassifier]] = {
    "default": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
}


class Result(NamedTuple):
    """Seconds per block: on the history, with it, and without; bytes of history and tree."""

    stream: str
    mode: str
    setting: str
    seconds_inside: list[float]
    seconds_with: list[float]
    seconds_without: list[float]
    history_bytes: int
    tree_bytes: int
    n_events: int
    n_samples: int

    def cost(self, share: float = 1.0) -> float:
        """Return what the history adds to the time of learning, over the first blocks."""
        n_blocks = round(share * len(self.seconds_with))
        inside, total = sum(self.seconds_inside[:n_blocks]), sum(self.seconds_with[:n_blocks])
        return inside / (total - inside)

    def against(self) -> float:
        """Return the median over the blocks of how much longer the learner with a history takes."""
        pairs = zip(self.seconds_with, self.seconds_without, strict=True)
        return median(own / other - 1 for own, other in pairs)


class Stopwatch:
    """Counts the time that a tree spends on its history."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_running = False

    def watch(self, tree: Tree) -> None:
        """Wrap what a tree does for its history."""
        decide = tree.decide
        tree._sample = self._timed(tree._sample)  # type: ignore[method-assign]
        tree._event = self._timed(tree._event)  # type: ignore[method-assign]
        assert tree.history is not None
        tree.history.add = self._timed(tree.history.add)  # type: ignore[method-assign]
        tree._sampler.marks = self._timed(tree._sampler.marks)  # type: ignore[method-assign]
        only_woken = self._timed(decide)
        tree.decide = lambda: decide() if tree.engine.due else only_woken()  # type: ignore[method-assign]

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **more: Any) -> Any:
            if self._is_running:  # inside what is timed already
                return call(*arguments, **more)
            self._is_running = True
            begin = time.process_time()
            result = call(*arguments, **more)
            self.seconds += time.process_time() - begin
            self._is_running = False
            return result

        return timed


def race(stream: str, mode: str, setting: str, n_rows: int, n_blocks: int) -> Result:
    """Let both learn the stream, a block each in turn."""
    learners = {keep: SETTINGS[setting](keep_history=keep) for keep in (True, False)}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    inside: list[float] = []
    watch = Stopwatch()
    form = FORMS[mode]
    for i, block in enumerate(cut_blocks(stream, n_rows, n_blocks)):
        before = watch.seconds
        feed = form.make(block, BATCH_ROWS)
        for keep in (True, False) if i % 2 else (False, True):
            gc.collect()  # or one pays for the other's litter
            begin = time.process_time()
            form.teach(learners[keep], feed)
            seconds[keep].append(time.process_time() - begin)
        if i == 0:
            watch.watch(learners[True]._tree)
        inside.append(watch.seconds - before)
    model = learners[True]
    history = model._tree.history
    del vars(history)["add"]  # the stopwatch's, which no pickle takes
    return Result(
        stream,
        mode,
        setting,
        inside,
        seconds[True],
        seconds[False],
        len(pickle.dumps(history)),
        model.memory_usage(),
        len(history.events),
        len(history.samples),
    )


def tabulate(results: Sequence[Result]) -> Table:
    """Lay out the costs."""
    table = Table(title="What a history adds to the time of learning", title_justify="left")
    for heading in ("stream", "mode", "setting"):
        table.add_column(heading)
    for heading in ("time", "first tenth", "against without", "MB", "tree MB", "events", "samples"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.stream,
            result.mode,
            result.setting,
            f"{result.cost():.1%}",
            f"{result.cost(0.1):.1%}",
            f"{result.against():+.1%}",
            f"{result.history_bytes / 1e6:.2f}",
            f"{result.tree_bytes / 1e6:.2f}",
            f"{result.n_events:,}",
            f"{result.n_samples:,}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=names(STREAMS), default=list(STREAMS))
    parser.add_argument("--modes", type=names(list(FORMS)), default=list(FORMS))
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
