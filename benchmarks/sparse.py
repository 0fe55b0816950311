"""Text and clicks: rows that hold few of many features, beside the learners one would use instead.

Row by row, test-then-train, one thread, all learners on the same dicts in the same run: River's
logistic regression (SGD, Adagrad, FTRL), multinomial naive Bayes and passive-aggressive classifier;
scikit-learn's SGDClassifier on hashed features, in batches; Vowpal Wabbit where it is installed
(`pip install vowpalwabbit`). Streams: SMS spam (in the folder DRIFTREE_DATA, words by `\\w+`), and
synthetic ones: words by Zipf's law whose meaning drifts, clicks with 10^5 levels, and words whose
meaning depends on a second column. The table shows macro F1, and how many times the rows of River's
Adagrad each learner takes per second of CPU: the median of several rounds, learners in turn.

    DRIFTREE_DATA=folder python benchmarks/sparse.py --rows 20000 --rounds 3
    DRIFTREE_DATA=folder python benchmarks/sparse.py --streams sms --learners driftree,adagrad
"""

import argparse
import csv
import gzip
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from options import names
from rich.console import Console
from rich.table import Table
from river import linear_model, metrics, naive_bayes, optim
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import SGDClassifier

import driftree

Row = dict[Any, Any]
Stream = tuple[list[Row], list[int]]
BATCH = 100  # rows of scikit-learn's


# ---------------------------------------------------------------------- streams
def sms(_: int) -> Stream:
    """Read the messages, as counts of their words."""
    path = Path(os.environ.get("DRIFTREE_DATA", "."), "sms_spam.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    words = [dict(Counter(re.findall(r"\w+", row["message"].lower()))) for row in rows]
    return words, [int(row["target"] == "spam") for row in rows]


def draw_words(rng: np.random.Generator, n: int, n_words: int) -> list[np.ndarray]:
    """Draw messages of some 13 words each by Zipf's law."""
    share = 1 / np.arange(1, n_words + 1) ** 1.05
    share /= share.sum()
    return [np.unique(rng.choice(n_words, rng.poisson(12) + 1, p=share)) for _ in range(n)]


def label(rng: np.random.Generator, log_odds: float) -> int:
    """Draw a label."""
    return int(rng.random() < 1 / (1 + np.exp(-log_odds)))


def topics(n: int) -> Stream:
    """Words of which a third has a meaning; of a quarter it changes half way."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 20_000)) * 1.5 * (rng.random(20_000) < 0.3)
    late = np.where(np.arange(20_000) % 4 == 0, second, first)
    X, y = [], []
    for i, words in enumerate(draw_words(rng, n, 20_000)):
        X.append({f"w{word}": 1 for word in words})
        y.append(label(rng, float((late if 2 * i >= n else first)[words].sum())))
    return X, y


def clicks(n: int) -> Stream:
    """One-hot columns, the largest of 10^5 levels."""
    rng = np.random.default_rng(1)
    effects = [rng.normal(size=size) for size in (100_000, 10_000, 1000, 100, 20, 10)]
    X, y = [], []
    for _ in range(n):
        levels = [int(len(effect) * rng.random() ** 3) for effect in effects]
        X.append({f"f{j}={level}": 1 for j, level in enumerate(levels)})
        y.append(label(rng, sum(e[level] for e, level in zip(effects, levels, strict=True)) - 1.5))
    return X, y


def channels(n: int) -> Stream:
    """Words that mean the opposite in the other of two channels."""
    rng = np.random.default_rng(1)
    effect = rng.normal(size=3000) * 1.2
    X, y = [], []
    for words in draw_words(rng, n, 3000):
        channel = int(rng.random() < 0.5)
        X.append({f"w{word}": 1 for word in words} | {"channel": channel})
        y.append(label(rng, float(effect[words].sum()) * (1 if channel else -1)))
    return X, y


STREAMS: dict[str, Callable[[int], Stream]] = {
    "sms": sms,
    "topics": topics,
    "clicks": clicks,
    "channels": channels,
}


# ---------------------------------------------------------------------- learners
class Hashed:
    """scikit-learn's SGD with log loss on hashed features, in batches."""

    def __init__(self) -> None:
        self.hasher = FeatureHasher(2**18)
        self.model = SGDClassifier(loss="log_loss", random_state=1)

    def run(self, X: list[Row], y: list[int]) -> list[int]:
        """Predict a batch, then learn it."""
        found: list[int] = []
        for start in range(0, len(X), BATCH):
            hashed = self.hasher.transform(X[start : start + BATCH])
            labels = y[start : start + BATCH]
            known = start > 0
            found += self.model.predict(hashed).tolist() if known else [0] * len(labels)
            self.model.partial_fit(hashed, labels, classes=[0, 1])
        return found


class Wabbit:
    """Vowpal Wabbit with its defaults for logistic loss."""

    def __init__(self) -> None:
        from vowpalwabbit import Workspace

        self.model = Workspace("--loss_function logistic -b 20 --quiet")

    def run(self, X: list[Row], y: list[int]) -> list[int]:
        """Predict each row, then learn it."""
        found = []
        for x, one in zip(X, y, strict=True):
            held = " ".join(f"{name}:{value}" for name, value in x.items())
            found.append(int(self.model.predict(f"| {held}") > 0))
            self.model.learn(f"{1 if one else -1} | {held}")
        return found


class RowByRow:
    """A learner of River's kind."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def run(self, X: list[Row], y: list[int]) -> list[int]:
        """Predict each row, then learn it."""
        model, found = self.model, []
        for x, one in zip(X, y, strict=True):
            found.append(model.predict_one(x))
            model.learn_one(x, one)
        return [int(label or 0) for label in found]


def logistic(optimizer: Any) -> RowByRow:
    """Return River's logistic regression."""
    return RowByRow(linear_model.LogisticRegression(optimizer))


LEARNERS: dict[str, Callable[[], Any]] = {
    "driftree": lambda: RowByRow(driftree.DynamicModelTreeClassifier()),
    "adagrad": lambda: logistic(optim.AdaGrad(0.3)),
    "sgd": lambda: logistic(optim.SGD(0.1)),
    "ftrl": lambda: logistic(optim.FTRLProximal()),
    "bayes": lambda: RowByRow(naive_bayes.MultinomialNB()),
    "passive": lambda: RowByRow(linear_model.PAClassifier()),
    "hashed": Hashed,
    "wabbit": Wabbit,
}


# ---------------------------------------------------------------------- the table
def measure(streams: list[str], learners: list[str], n_rows: int, rounds: int) -> Table:
    """Run all learners on all streams, in turn, and return the table."""
    table = Table("stream", "rows", "features", *learners, "leaves")
    for name in streams:
        X, y = STREAMS[name](n_rows)
        n_features = len({key for x in X for key in x})
        seconds: dict[str, list[float]] = {learner: [] for learner in learners}
        scores, leaves = {}, "-"
        for _ in range(rounds):
            for learner in learners:
                model = LEARNERS[learner]()
                start = time.process_time()
                found = model.run(X, y)
                seconds[learner].append(time.process_time() - start)
                f1 = metrics.MacroF1()
                for one, label_found in zip(y, found, strict=True):
                    f1.update(one, label_found)
                scores[learner] = f1.get()
                if learner == "driftree":
                    leaves = str(model.model.n_leaves_)
        base = median(seconds.get("adagrad", [float("nan")]))
        table.add_row(
            name,
            f"{len(X):,}",
            f"{n_features:,}",
            *(f"{scores[one]:.4f} ({base / median(seconds[one]):.1f}x)" for one in learners),
            leaves,
        )
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=names([*STREAMS]), default=[*STREAMS])
    parser.add_argument("--learners", type=names([*LEARNERS]), default=[*LEARNERS])
    parser.add_argument("--rows", type=int, default=20_000, help="of the synthetic streams")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    given = parser.parse_args()
    learners = given.learners
    try:
        import vowpalwabbit  # noqa: F401
    except ImportError:
        if "wabbit" in learners:
            learners.remove("wabbit")
            print("Vowpal Wabbit is not installed: pip install vowpalwabbit", file=sys.stderr)
    Console(width=180).print(measure(given.streams, learners, given.rows, given.rounds))


if __name__ == "__main__":
    main()
