"""Does a refactoring change anything? A hash of all predictions, test-then-train, bit by bit.

The default with and without curves, the paper's setting and FIMT-DD, on real and synthetic streams,
row by row and in batches: probabilities of every row before it is learnt, and the tree's events.
Run it before and after a change that must not change behaviour, on one machine, and compare.

    DRIFTREE_DATA=folder python benchmarks/hashes.py --json before.json
    DRIFTREE_DATA=folder python benchmarks/hashes.py --compare before.json
"""

import argparse
import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from options import names
from rich.console import Console

import driftree
from driftree.streams import load_data_set

STREAMS = {
    "electricity": "electricity",
    "bank": "bank_marketing",
    "covertype": "covertype",
    "sea": "sea",
    "agrawal": "agrawal",
}
MODELS = {
    "default": driftree.DynamicModelTreeClassifier,
    "straight": functools.partial(driftree.DynamicModelTreeClassifier, max_bends=0),
    "paper": driftree.DynamicModelTreeClassifier.paper,
    "fimtdd": driftree.FIMTDDClassifier,
}
MODES = {"rows": 1, "batches": 50}


def hash_run(model: Any, columns: dict[str, Any], y: Sequence[Any], size: int) -> str:
    """Return a digest of what a model says of each row before it learns it."""
    digest = hashlib.sha256()
    names_of = list(columns)
    rows = list(zip(*columns.values(), strict=True)) if size == 1 else []
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        if size == 1:
            row = dict(zip(names_of, rows[start], strict=True))
            digest.update(np.array([*model.predict_proba_one(row).values()]).tobytes())
            model.learn_one(row, y[start])
        else:
            batch = {name: column[part] for name, column in columns.items()}
            said = model.predict_proba_many(batch)
            digest.update(np.array([*said.values()]).tobytes())
            model.learn_many(batch, y[part])
    for event in getattr(model, "events_", ()):
        digest.update(repr(event).encode())
    return digest.hexdigest()[:16]


def run(streams: Sequence[str], models: Sequence[str], n_rows: int) -> Iterator[tuple[str, str]]:
    """Yield the names of all runs with their hashes."""
    for stream in streams:
        data = load_data_set(STREAMS[stream], preprocess="none", max_rows=n_rows)
        X = (
            data.X
            if isinstance(data.X, dict)
            else dict(zip(data.feature_names, data.X.T, strict=True))
        )
        columns = {name: np.asarray(column).tolist() for name, column in X.items()}
        arrays = {name: np.asarray(column) for name, column in X.items()}
        for model in models:
            for mode, size in MODES.items():
                given = columns if size == 1 else arrays
                yield (
                    f"{stream} {model} {mode}",
                    hash_run(MODELS[model](), given, np.asarray(data.y), size),
                )


def main() -> None:
    """Print the hashes; write or compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=names(STREAMS), default=list(STREAMS))
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS))
    parser.add_argument("--rows", type=int, default=50_000, help="of each stream, at most")
    parser.add_argument("--json", type=Path, help="write the hashes to this file")
    parser.add_argument("--compare", type=Path, help="exit with 1 if they are not those in it")
    given = parser.parse_args()
    before = json.loads(given.compare.read_text()) if given.compare else {}
    found, n_changed = {}, 0
    for name, digest in run(given.streams, given.models, given.rows):
        found[name] = digest
        has_changed = name in before and before[name] != digest
        n_changed += has_changed
        Console().print(f"{name:30} {digest}{'  CHANGED' if has_changed else ''}", highlight=False)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    if before:
        print(f"{n_changed} of {len(found)} have changed")
    if n_changed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
