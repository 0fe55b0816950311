"""Rare labels: class weights and thresholds beside River's samplers, on a stream like fraud.

Payments of which 0.5 % are fraud, row by row, each predicted before its label is learnt. In the
middle the way of fraud changes, not its share: from large sums with new devices to many small
payments of young accounts. `driftree` is one tree as it is, with `class_weight="balanced"`, and
with thresholds for a stated recall, precision and cost. River's RandomUnderSampler,
RandomOverSampler, RandomSampler and HardSampling are around its Hoeffding tree and its logistic
regression (with StandardScaler), which predict the more probable label.

The table has precision, recall and F1 of fraud, the area under the ROC curve and the average
precision (which need no threshold), the cost of 1 per false alarm and 50 per missed fraud, and
for a stated precision or recall in how many of the halves of all streams it was held, within
`--slack`; in brackets, how many that would be of a threshold that is right, where as many rows are
flagged, or fraud, as were: few rows differ from their mean by chance. The first 2,000 rows do not
count.

    python benchmarks/imbalance.py --rows 100000 --seeds 5
    python benchmarks/imbalance.py --learners tree,recall --rows 20000 --markdown

With `--few` the question is how far off a stated precision is after few rows: of streams with one
rule each (clear or noisy, with rare labels, one that a line cannot tell), the first rows are learnt
in batches of 100, and 3,000 others are then predicted. The table has the share of streams that were
short of the precision by more than 0.1, of those in which at least ten rows were flagged, and the
mean recall.

    python benchmarks/imbalance.py --few --seeds 30 --markdown
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table
from river import imblearn, linear_model, preprocessing, tree
from scipy.stats import binom
from sklearn.metrics import average_precision_score, roc_auc_score

from driftree import DynamicModelTreeClassifier

FEATURES = ("amount", "hour", "account days", "payments today", "new device", "abroad")
SHARE = 0.005
FIRST_ROWS = 2000
COSTS = {"fp": 1.0, "fn": 50.0}
PRECISION, HIGH_PRECISION, RECALL = 0.3, 0.5, 0.8

Doubles = NDArray[np.float64]


# ---------------------------------------------------------------------- the stream
def payments(n_rows: int, seed: int) -> tuple[Doubles, NDArray[np.int64]]:
    """Return payments and whether each is fraud; the rule changes after half of them."""
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(3.5, 1.0, n_rows)
    hour = rng.uniform(0.0, 24.0, n_rows)
    days = rng.exponential(400.0, n_rows)
    today = rng.poisson(2.0, n_rows).astype(np.float64)
    device, abroad = (rng.random((2, n_rows)) < [[0.1], [0.08]]).astype(np.float64)
    size, night = np.log(amount) - 3.5, hour < 6
    first = 2.4 * size + 3.0 * device + 2.2 * abroad - 1.2 * np.log1p(days / 100) + 1.5 * night
    second = -1.8 * size + 0.8 * device + 3.8 * (today >= 5) + 2.2 * np.exp(-days / 60)
    second += 2.0 * abroad + 1.5 * night
    y = np.zeros(n_rows, dtype=np.int64)
    for part, odds in ((slice(n_rows // 2), first), (slice(n_rows // 2, None), second)):
        chances = _with_mean(1.5 * odds[part], SHARE)
        y[part] = rng.random(len(chances)) < chances
    return np.column_stack([amount, hour, days, today, device, abroad]), y


def _with_mean(odds: Doubles, mean: float) -> Doubles:
    """Return probabilities of log-odds that are moved until their mean is as wanted."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        if (1.0 / (1.0 + np.exp(-(odds + middle)))).mean() > mean:
            high = middle
        else:
            low = middle
    return np.asarray(1.0 / (1.0 + np.exp(-(odds + low))))


# ---------------------------------------------------------------------- learners
def _hoeffding() -> Any:
    return tree.HoeffdingTreeClassifier()


def _logistic() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def _sampled(make: Callable[[], Any], how: str) -> Any:
    wanted = {0: 0.5, 1: 0.5}
    if how == "under":
        return imblearn.RandomUnderSampler(make(), wanted, seed=1)
    if how == "over":
        return imblearn.RandomOverSampler(make(), wanted, seed=1)
    if how == "random":  # a tenth of the rows, half of them fraud
        return imblearn.RandomSampler(make(), wanted, sampling_rate=0.1, seed=1)
    return imblearn.HardSamplingClassifier(make(), size=100, p=0.1, seed=1)


class Learner(NamedTuple):
    """A learner, and what was asked of it."""

    title: str
    make: Callable[[], Any]
    precision: float | None = None
    recall: float | None = None


def _tree(title: str, **parameters: Any) -> Learner:
    asked = parameters.get("threshold") or {}
    return Learner(
        title,
        lambda: DynamicModelTreeClassifier(**parameters),
        asked.get("precision"),
        asked.get("recall"),
    )


LEARNERS: dict[str, Learner] = {
    "tree": _tree("driftree"),
    "balanced": _tree("driftree, balanced", class_weight="balanced"),
    "precision": _tree(f"driftree, precision {PRECISION}", threshold={"precision": PRECISION}),
    "high-precision": _tree(
        f"driftree, precision {HIGH_PRECISION}", threshold={"precision": HIGH_PRECISION}
    ),
    "recall": _tree(f"driftree, recall {RECALL}", threshold={"recall": RECALL}),
    "cost": _tree("driftree, cost", threshold=COSTS),
    "balanced-precision": _tree(
        f"driftree, balanced, precision {PRECISION}",
        class_weight="balanced",
        threshold={"precision": PRECISION},
    ),
    "balanced-recall": _tree(
        f"driftree, balanced, recall {RECALL}",
        class_weight="balanced",
        threshold={"recall": RECALL},
    ),
    "balanced-cost": _tree("driftree, balanced, cost", class_weight="balanced", threshold=COSTS),
}
for _name, _title, _make in (
    ("hoeffding", "Hoeffding tree", _hoeffding),
    ("logistic", "logistic regression", _logistic),
):
    LEARNERS[_name] = Learner(f"River, {_title}", _make)
    for _how in ("under", "over", "random", "hard"):
        LEARNERS[f"{_name}-{_how}"] = Learner(
            f"River, {_title}, {_how}", lambda make=_make, how=_how: _sampled(make, how)
        )


# ---------------------------------------------------------------------- figures
def predict_then_learn(
    model: Any, X: Doubles, y: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], Doubles]:
    """Return which rows were predicted to be fraud, and the probabilities of it."""
    is_flagged, chances = np.zeros(len(y), dtype=bool), np.zeros(len(y))
    for i, (values, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        row = dict(zip(FEATURES, values, strict=True))
        chances[i] = model.predict_proba_one(row).get(1, 0.0)
        is_flagged[i] = model.predict_one(row) == 1
        model.learn_one(row, label)
    return is_flagged, chances


def figures(learner: Learner, X: Doubles, y: NDArray[np.int64], slack: float) -> dict[str, float]:
    """Return the figures of one stream."""
    is_flagged, chances = predict_then_learn(learner.make(), X, y)
    is_fraud = y == 1
    whole, middle = slice(FIRST_ROWS, None), len(y) // 2
    held, expected = [], []
    for part in (slice(FIRST_ROWS, middle), slice(middle, None)):
        found = _of(is_flagged[part], is_fraud[part])
        counts = int(is_flagged[part].sum()), int(is_fraud[part].sum())
        for asked, share, n in zip((learner.precision, learner.recall), found, counts, strict=True):
            if asked is not None:
                held.append(share >= asked - slack)
                expected.append(binom.sf(math.ceil((asked - slack) * n) - 1, n, asked))
    precision, recall = _of(is_flagged[whole], is_fraud[whole])
    n_wrong = np.sum(is_flagged[whole] & ~is_fraud[whole])
    n_missed = np.sum(~is_flagged[whole] & is_fraud[whole])
    return {
        "precision": precision,
        "recall": recall,
        "F1": 2 * precision * recall / max(precision + recall, 1e-12),
        "ROC AUC": float(roc_auc_score(is_fraud[whole], chances[whole])),
        "average precision": float(average_precision_score(is_fraud[whole], chances[whole])),
        "cost": float(COSTS["fp"] * n_wrong + COSTS["fn"] * n_missed),
        "held": float(sum(held)),
        "asked": float(len(held)),
        "expected": float(sum(expected)),
    }


def _of(is_flagged: NDArray[np.bool_], is_fraud: NDArray[np.bool_]) -> tuple[float, float]:
    """Return precision and recall; precision is 0 where nothing is flagged."""
    n_right = float(np.sum(is_flagged & is_fraud))
    return n_right / max(1, is_flagged.sum()), n_right / max(1, is_fraud.sum())


# ---------------------------------------------------------------------- few rows
RULES = {"clear": (6.0, 0.0), "noisy": (1.5, 0.0), "rare": (3.0, -4.0), "very rare": (2.5, -6.0)}
FEW_ROWS = (50, 100, 200, 500, 1000, 2000, 5000)
FEW_BATCH, FEW_TESTED, FEW_FLAGGED, FEW_SHORT = 100, 3000, 10, 0.1
FEW_PRECISIONS = (0.3, 0.5, 0.8, 0.9)
Found = dict[int, list[tuple[float, float]]]
"""By rows learnt: what each stream was short of its precision (NaN: nothing flagged), recall."""


def by_rule(rule: str, n_rows: int, seed: int) -> tuple[Doubles, NDArray[np.int64]]:
    """Return rows of a stream with one rule."""
    rng = np.random.default_rng([seed, *rule.encode()])
    X, direction = rng.normal(size=(n_rows, 6)), rng.normal(size=6)
    if rule == "crossed":
        odds = 4.0 * np.sign(X[:, 0]) * X[:, 1]
    else:
        slope, shift = RULES[rule]
        odds = slope * (X @ direction) / np.linalg.norm(direction) + shift
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int64)


def learn_few(rule: str, precision: float, seed: int, found: Found) -> None:
    """Add what one stream shows after each number of rows."""
    n_rows = FEW_ROWS[-1]
    X, y = by_rule(rule, n_rows + FEW_TESTED, seed)
    is_wanted = y[n_rows:] == 1
    model = DynamicModelTreeClassifier(threshold={"precision": precision})
    ends = sorted({*FEW_ROWS, *range(FEW_BATCH, n_rows, FEW_BATCH)})
    for start, end in zip([0, *ends], ends, strict=False):
        model.partial_fit(X[start:end], y[start:end], classes=[0, 1])
        if end in FEW_ROWS:
            is_flagged = model.predict(X[n_rows:]) == 1
            said, recall = _of(is_flagged, is_wanted)
            short = precision - said if is_flagged.sum() >= FEW_FLAGGED else math.nan
            found[end].append((short, recall))


def show_few(first_seed: int, n_seeds: int) -> Iterator[list[str]]:
    """Yield a line per number of rows."""
    found: Found = {n_rows: [] for n_rows in FEW_ROWS}
    for seed in range(first_seed, first_seed + n_seeds):
        for rule in (*RULES, "crossed"):
            for precision in FEW_PRECISIONS:
                learn_few(rule, precision, seed, found)
    for n_rows, streams in found.items():
        short, recall = np.array(streams).T
        is_told = ~np.isnan(short)
        share = float((short[is_told] > FEW_SHORT).mean())
        yield [f"{n_rows:,}", f"{share:.3f}", f"{is_told.mean():.2f}", f"{recall.mean():.3f}"]


# ---------------------------------------------------------------------- output
COLUMNS = ("precision", "recall", "F1", "ROC AUC", "average precision", "cost", "held")


def rows_of(results: dict[str, list[dict[str, float]]]) -> Iterator[list[str]]:
    """Yield a line per learner: means over the streams."""
    for name, found in results.items():
        means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        n_held, n_asked, expected = (
            sum(one[key] for one in found) for key in ("held", "asked", "expected")
        )
        shown = [f"{means[column]:.3f}" for column in COLUMNS[:5]]
        held = f"{n_held:.0f} of {n_asked:.0f} ({expected:.1f})" if n_asked else ""
        yield [LEARNERS[name].title, *shown, f"{means['cost']:,.0f}", held]


def main() -> None:
    """Run what the command line says, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000, help="of each stream")
    parser.add_argument("--seeds", type=int, default=5, help="how many streams")
    parser.add_argument("--first-seed", type=int, default=101, help="1 to 6 chose the constants")
    parser.add_argument("--slack", type=float, default=0.05, help="below what was stated")
    parser.add_argument("--learners", type=names(list(LEARNERS)), default=list(LEARNERS))
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--few", action="store_true", help="a stated precision after few rows")
    given = parser.parse_args()
    if given.few:
        heads = ["rows", "short by more than 0.1", "flagged any", "recall"]
        show(heads, show_few(given.first_seed, given.seeds), "", markdown=given.markdown)
        return
    data = [payments(given.rows, given.first_seed + i) for i in range(given.seeds)]
    results: dict[str, list[dict[str, float]]] = {}
    for name in given.learners:
        results[name] = [figures(LEARNERS[name], X, y, given.slack) for X, y in data]
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    n_fraud = np.mean([y.mean() for _, y in data])
    title = f"{given.seeds} streams of {given.rows:,} rows, {n_fraud:.2%} fraud"
    show(["learner", *COLUMNS], rows_of(results), title, markdown=given.markdown)


def show(heads: list[str], rows: Iterator[list[str]], title: str, *, markdown: bool) -> None:
    """Print a table."""
    if markdown:
        print("| " + " | ".join(heads) + " |\n|---" + "|--:" * (len(heads) - 1) + "|")
        for cells in rows:
            print("| " + " | ".join(cells) + " |")
        return
    table = Table(*heads, title=title, title_justify="left")
    for cells in rows:
        table.add_row(*cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
