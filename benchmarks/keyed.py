"""A model per key: who should predict for a new key, and what do many keys cost?

    python benchmarks/keyed.py cold             minutes; rules for new keys, compared
    python benchmarks/keyed.py memory           a quarter of an hour; 100,000 keys in 1 GB
    python benchmarks/keyed.py memory --print --keys 5000 --megabytes 20

Both write docs/scale.md, unless they are told to `--print` only.
"""

import argparse
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import page
from resident import require_linux, resident_bytes
from rich.console import Console

from driftree import DynamicModelTreeClassifier
from driftree.scale import KeyedModels
from driftree.scale.keys import RECENT, label_loss

NAMES = [f"x{j}" for j in range(5)]
SPREADS = (0.0, 0.3, 1.0, 3.0)
AT_A_TIME = 20  # keys that have rows; others come when these have had all of theirs
Row = tuple[int, dict[str, float], bool]


# ---------------------------------------------------------------------- new keys
def population(rule: str, spread: float, n_keys: int, seed: int = 1) -> Iterator[Row]:
    """Yield rows of keys whose weights differ from each other by a spread; few have many rows."""
    rng = np.random.default_rng(seed)
    base = 1.5 * rng.normal(size=len(NAMES))
    own = spread * rng.normal(size=(n_keys, len(NAMES) + 1))
    left = np.minimum(1000, (rng.pareto(1.0, n_keys) * 20 + 5).astype(int))
    to_come, active = iter(range(n_keys)), list[int]()
    while True:
        active += itertools.islice(to_come, AT_A_TIME - len(active))
        if not active:
            return
        key = active[rng.integers(len(active))]
        left[key] -= 1
        if left[key] == 0:
            active.remove(key)
        x = rng.normal(size=len(NAMES))
        common = base @ x if rule == "line" else (3 if (x[0] > 0) != (x[1] > 0) else -3)
        logit = common + own[key] @ [*x, 1]
        yield (
            key,
            dict(zip(NAMES, x.tolist(), strict=True)),
            rng.random() < 1 / (1 + math.exp(-logit)),
        )


class Key:
    """Two models of a key, one new and one a copy of the parent, and what all have lost."""

    def __init__(self, parent: Any) -> None:
        self.models = {"own": DynamicModelTreeClassifier(), "copy": copy.deepcopy(parent)}
        self.sums = {"own": 0.0, "copy": 0.0, "parent": 0.0}
        self.n_rows = 0

    def better(self, name: str, lead: float) -> str:
        return name if self.sums["parent"] - self.sums[name] >= lead else "parent"


RULES: dict[str, Callable[[Key], str]] = {
    "the parent, always": lambda key: "parent",
    "the key's own model, always": lambda key: "own",
    "a copy of the parent, which goes on with the key's rows": lambda key: "copy",
    **{
        f"the parent for {n} rows, then the own model": (
            lambda key, n=n: "parent" if key.n_rows < n else "own"
        )
        for n in (20, 50, 100, 200, 500)
    },
    **{
        f"the own model, if it has lost {lead:g} nats less": (
            lambda key, lead=lead: key.better("own", lead)
        )
        for lead in (0.0, 1.0, 2.0, 3.0)
    },
    "the copy, if it has lost 1 nat less": lambda key: key.better("copy", 1.0),
}


def compare(rule: str, spread: float, n_keys: int) -> dict[str, float]:
    """Return the mean loss per row by each rule."""
    parent = DynamicModelTreeClassifier()
    keys: dict[int, Key] = {}
    losses = dict.fromkeys(RULES, 0.0)
    n_rows = 0
    for name, x, y in population(rule, spread, n_keys):
        key = keys.get(name) or keys.setdefault(name, Key(parent))
        costs = {"parent": label_loss(parent.predict_proba_one(x), y)}
        for kind, model in key.models.items():
            is_new = kind == "own" and key.n_rows == 0
            costs[kind] = costs["parent"] if is_new else label_loss(model.predict_proba_one(x), y)
        for words, choose in RULES.items():
            losses[words] += costs[choose(key)]
        for kind, cost in costs.items():
            key.sums[kind] = RECENT * key.sums[kind] + cost
        for model in (parent, *key.models.values()):
            model.learn_one(x, y)
        key.n_rows += 1
        n_rows += 1
    return {words: loss / n_rows for words, loss in losses.items()}


def print_cold(n_keys: int, writes: bool) -> None:
    cases = [(rule, spread) for rule in ("line", "xor") for spread in SPREADS]
    found = [compare(rule, spread, n_keys) for rule, spread in cases]
    means = {words: float(np.mean([one[words] for one in found])) for words in RULES}
    body = [
        [words, *(f"{one[words]:.3f}" for one in found), f"{mean:.3f}"]
        for words, mean in sorted(means.items(), key=lambda item: item[1])
    ]
    head = ["who predicts", *(f"{rule}, {spread:g}" for rule, spread in cases), "mean"]
    table = page.markdown(head, body)
    if writes:
        page.write_table("cold", "## Keys that are new", table, "scale")
    Console().print(table)


# ---------------------------------------------------------------------- many keys
def print_memory(n_keys: int, megabytes: int, rows_per_key: int, writes: bool) -> None:
    """Learn rows of very many keys; say what the process holds, and how fast it is."""
    require_linux()
    console = Console()
    rng = np.random.default_rng(1)
    before = resident_bytes()
    keyed = KeyedModels(DynamicModelTreeClassifier, "key", memory=megabytes * 2**20)
    most, n_rows = before, 0
    shift = rng.normal(size=n_keys)
    for part in np.array_split(rng.permutation(n_keys), max(1, n_keys // 2000)):
        # Of each part most rows come together, some come back later, and some are of any key.
        keys = np.concatenate(
            [np.repeat(part, rows_per_key - 1), rng.integers(0, n_keys, len(part))]
        )
        X = rng.normal(size=(len(keys), 3))
        columns = {"key": keys, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
        keyed.learn_many(columns, X[:, 0] + X[:, 1] > shift[keys])
        n_rows += len(keys)
        most = max(most, resident_bytes())
    summary = keyed.summary()
    disk = sum(path.stat().st_size for path in keyed._store.folder.iterdir())
    console.print(str(summary), highlight=False)
    table = page.markdown(
        [
            "keys",
            "rows",
            "MB resident, at most",
            "MB before",
            "MB of models in memory",
            "MB on disk",
        ],
        [
            [
                f"{summary.n_keys:,}",
                f"{n_rows:,}",
                f"{most / 1e6:,.0f}",
                f"{before / 1e6:,.0f}",
                f"{summary.memory / 1e6:,.0f}",
                f"{disk / 1e6:,.0f}",
            ]
        ],
    )
    if writes:
        page.write_table("keys", "### Very many keys", table, "scale")
    console.print(table)
    if most > 2**30:
        raise SystemExit(f"{most:,} bytes were resident, more than 1 GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cold", "memory"])
    parser.add_argument("--keys", type=int)
    parser.add_argument("--rows", type=int, default=10, help="per key")
    parser.add_argument("--megabytes", type=int, default=512, help="of models in memory")
    parser.add_argument("--print", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.what == "cold":
        print_cold(options.keys or 300, writes=not options.print)
    else:
        given = options.keys or 100_000, options.megabytes, options.rows
        print_memory(*given, writes=not options.print)


if __name__ == "__main__":
    main()
