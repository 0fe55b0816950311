"""What does it cost to watch for drifts? Processor time to learn, with the watch beside without it.

Blocks of the same rows are learnt by two models in turn, one that watches and one that does not;
the median of the ratios of their times is printed.

    python benchmarks/watch_cost.py --blocks 200

Times differ by more than it costs. Instructions do not: count those of the kernels with and without
it (`callgrind_annotate --inclusive=yes`, the first lines of _kernels).

    DRIFTREE_ISA=avx2 valgrind --tool=callgrind python benchmarks/watch_cost.py --once on
    DRIFTREE_ISA=avx2 valgrind --tool=callgrind python benchmarks/watch_cost.py --once off
"""

import argparse
import time
from dataclasses import asdict
from statistics import median

import numpy as np

from driftree import DynamicModelTreeClassifier
from driftree.learn.constants import WATCH
from driftree.streams import agrawal, hyperplane, sea

BLOCK = 5000
STREAMS = {
    "SEA, 3 features": lambda n: sea(n, batch_rows=1000),
    "Agrawal, 9 features": lambda n: agrawal(n, batch_rows=1000, function=2),
    "hyperplane, 10 features": lambda n: hyperplane(n, batch_rows=1000),
}


def without_watch(model: DynamicModelTreeClassifier) -> None:
    """Let a model that has learnt something watch no more."""
    assert model._tree is not None
    numbers = {name: value for name, value in asdict(WATCH).items() if "per_million" not in name}
    model._tree.engine.watch(**(numbers | {"keep_one_in": 0, "level": np.inf}))


def learn_once(*, is_watched: bool) -> None:
    """Learn rows, for who counts instructions."""
    model = DynamicModelTreeClassifier()
    for i, (X, y) in enumerate(sea(40_000)):
        model.partial_fit(X, y)
        if i == 0 and not is_watched:
            without_watch(model)


def main() -> None:
    """Print a line for each stream."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=200, help="of 5,000 rows")
    parser.add_argument("--once", choices=["on", "off"], help="learn 40,000 rows of SEA")
    given = parser.parse_args()
    if given.once:
        learn_once(is_watched=given.once == "on")
        return
    for name, make in STREAMS.items():
        models = [DynamicModelTreeClassifier(), DynamicModelTreeClassifier()]
        batches = list(make(BLOCK * (given.blocks + 1)))
        seconds = np.zeros((given.blocks + 1, 2))
        for i in range(given.blocks + 1):
            for k in (0, 1) if i % 2 else (1, 0):
                begin = time.process_time()
                for X, y in batches[i * BLOCK // 1000 : (i + 1) * BLOCK // 1000]:
                    models[k].partial_fit(X, y)
                seconds[i, k] = time.process_time() - begin
            if i == 0:
                without_watch(models[1])
        ratio = median((seconds[1:, 0] / seconds[1:, 1]).tolist())
        print(f"{name}: {100 * (ratio - 1):+.2f} %")


if __name__ == "__main__":
    main()
