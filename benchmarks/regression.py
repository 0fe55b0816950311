"""Numbers to predict: driftree beside ten other learners of streams, row by row.

Each row is predicted, then learnt; all get the same rows in the same run. Peers are River's
(prepared as `driftree compare --task regression` does: numbers scaled online and within 6
deviations, categories as 0 or 1) and, where it is installed, CapyMOA's FIMTDD, ORTO and ARFFIMTDD.
References, which are not ranked: the running mean, the last target (no-change), exact recursive
least squares, and scikit-learn's histogram gradient boosting, fitted again every 1,000 rows on the
last 10,000. Streams are the files in DRIFTREE_DATA/regression, and synthetic ones; those in which a
target is much like the one before it (rho at least 0.83) are summed up apart.

Ensembles of ten are slow, and run where they are asked for (--peers): River's ARF, SRP and OXT,
CapyMOA's ARF, SOKNL and gradient boosting, and its nearest neighbours.

With --json, figures of peers that are in the file already are taken from there: only driftree's
learners run again.

    DRIFTREE_DATA=folder python benchmarks/regression.py --json benchmarks/results/regression.json
    DRIFTREE_DATA=folder python benchmarks/regression.py --streams bike_hour,mv --ours dmt,fimtdd
    DRIFTREE_DATA=folder python benchmarks/regression.py --rows 2000 --ours dmt,forest \
        --references mean --peers arf,srp,oxt,moa-arfreg,moa-soknl,moa-knn,moa-sgbr
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import capymoa_peers
import numpy as np
from options import names
from regression_streams import STREAMS, NumberStream
from rich.console import Console
from rich.table import Table
from river import base, ensemble, forest
from sklearn.ensemble import HistGradientBoostingRegressor

from driftree.evaluate import make_learner, measure_size, score_numbers
from driftree.evaluate.learners import PreparedRows
from driftree.evaluate.records import show_number

if TYPE_CHECKING:
    from collections.abc import Iterable

OURS = ("dmt", "forest", "dmt-paper", "fimtdd")
RIVERS = ("linear", "pa", "ewa", "htr", "hatr", "sgt", "amrules")
MOAS: dict[str, tuple[str, dict[str, Any]]] = {
    "moa-fimtdd": ("FIMTDD", {}),
    "moa-orto": ("ORTO", {}),
    "moa-arf": ("ARFFIMTDD", {}),
    "moa-arfreg": ("AdaptiveRandomForestRegressor", {"ensemble_size": 10}),
    "moa-soknl": ("SOKNL", {"ensemble_size": 10}),
    "moa-knn": ("KNNRegressor", {}),
    "moa-sgbr": ("StreamingGradientBoostedRegression", {"boosting_iterations": 10}),
}
ENSEMBLES: dict[str, Callable[[], base.Regressor]] = {
    "arf": lambda: forest.ARFRegressor(n_models=10, seed=1),
    "srp": lambda: ensemble.SRPRegressor(n_models=10, seed=1),
    "oxt": lambda: forest.OXTRegressor(n_models=10, seed=1),
}
REFERENCES = ("mean", "no-change", "rls", "hgb")
SINGLE = (*RIVERS, "moa-fimtdd", "moa-orto", "moa-arf")  # and MOA's forest of such trees
PEERS = (*SINGLE, *ENSEMBLES, *(name for name in MOAS if name not in SINGLE))
LEARNERS = (*OURS, *PEERS, *REFERENCES)
AUTOCORRELATED = 0.83
REFIT_ROWS, FIT_ROWS = 1000, 10_000  # of gradient boosting


class Result(NamedTuple):
    """How a learner did on a stream; the first row, of which nobody can know, is left out.

    `leaves` are those at the end, None for what is no tree; `rate` is in rows per second of CPU.
    """

    mae: float
    rmse: float
    leaves: int | None
    rate: float


# ---------------------------------------------------------------------- references
class LeastSquares(base.Regressor):
    """Exact recursive least squares: nothing is forgotten, and there is hardly a prior."""

    def __init__(self, variance: float = 1e3) -> None:
        self.variance = variance
        self.places: dict[Any, int] = {}
        self.weights = np.zeros(1)
        self.matrix = np.eye(1) * variance

    def _vector(self, x: dict[Any, float]) -> np.ndarray:
        new = [name for name in x if name not in self.places]
        if new:
            self.places |= {name: len(self.weights) + i for i, name in enumerate(new)}
            n_old, n_all = len(self.weights), len(self.weights) + len(new)
            matrix = np.eye(n_all) * self.variance
            matrix[:n_old, :n_old] = self.matrix
            self.matrix, self.weights = matrix, np.append(self.weights, np.zeros(len(new)))
        z = np.zeros(len(self.weights))
        z[0] = 1
        for name, value in x.items():
            z[self.places[name]] = value
        return z

    def predict_one(self, x: dict[Any, float]) -> float:
        """Return the prediction."""
        return float(self._vector(x) @ self.weights)

    def learn_one(self, x: dict[Any, float], y: float) -> None:
        """Learn a row."""
        z = self._vector(x)
        reach = self.matrix @ z
        share = reach / (1 + z @ reach)
        self.weights = self.weights + share * (y - z @ self.weights)
        self.matrix = self.matrix - np.outer(share, reach)


def boost(stream: NumberStream) -> tuple[np.ndarray, None]:
    """Predict each thousand rows by gradient boosting on up to ten thousand rows before them."""
    columns = list(dict.fromkeys(name for x in stream.X for name in x))
    levels: dict[Any, dict[Any, int]] = {}
    table = np.full((len(stream.X), len(columns)), math.nan)
    for i, x in enumerate(stream.X):
        for j, name in enumerate(columns):
            value = x.get(name)
            if isinstance(value, str):
                codes = levels.setdefault(name, {})
                value = min(codes.setdefault(value, len(codes)), 254)
            table[i, j] = math.nan if value is None else value
    predicted = np.zeros(len(table))
    for start in range(REFIT_ROWS, len(table), REFIT_ROWS):
        past = slice(max(0, start - FIT_ROWS), start)
        model = HistGradientBoostingRegressor(
            categorical_features=[name in levels for name in columns], random_state=1
        ).fit(table[past], stream.y[past])
        now = slice(start, start + REFIT_ROWS)
        predicted[now] = model.predict(table[now])
    before = slice(1, min(REFIT_ROWS, len(table)))  # not fitted yet: the running mean
    predicted[before] = (np.cumsum(stream.y) / np.arange(1, len(table) + 1))[: before.stop - 1]
    return predicted, None


# ---------------------------------------------------------------------- one run
def make(learner: str, stream: NumberStream) -> Any:
    """Return a learner that knows nothing."""
    if learner in MOAS:
        name, options = MOAS[learner]
        return capymoa_peers.Regressor(name, stream.X, **options)
    if learner in ENSEMBLES:
        return PreparedRows() | ENSEMBLES[learner]()
    if learner == "rls":
        return PreparedRows() | LeastSquares()
    return make_learner(learner, task="regression")


def go(model: Any, stream: NumberStream) -> tuple[np.ndarray, Any]:
    """Predict, then learn, row by row."""
    predicted = np.empty(len(stream.y))
    for i, (x, y) in enumerate(zip(stream.X, stream.y.tolist(), strict=True)):
        predicted[i] = model.predict_one(x)
        model.learn_one(x, y)
    return predicted, model


def measure(learner: str, stream: NumberStream) -> Result:
    """Run a learner on a stream."""
    model = None if learner == "hgb" else make(learner, stream)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers that overflow
        predicted, model = boost(stream) if model is None else go(model, stream)
    seconds = time.process_time() - start
    scores = score_numbers(stream.y[1:], predicted[1:])
    return Result(scores.mae, scores.rmse, count_leaves(model), len(stream.y) / seconds)


def count_leaves(model: Any) -> int | None:
    """Return the leaves of a tree, or the rules; None of anything else."""
    if isinstance(model, capymoa_peers.Regressor):
        return model.count_leaves()
    size = None if model is None else measure_size(model, 1, 1)
    return None if size is None else (size.n_nodes + 1) // 2


# ---------------------------------------------------------------------- what comes out
Figures = dict[str, dict[str, Result]]  # by stream and learner


def best_of(found: dict[str, Result], peers: Iterable[str]) -> float:
    """Return the least MAE of the peers."""
    return min(found[peer].mae for peer in peers)


def rank(found: dict[str, Result], learner: str, rivals: Iterable[str], score: str) -> float:
    """Return a learner's place among its rivals; equal ones share theirs."""
    own = getattr(found[learner], score)
    others = [getattr(found[rival], score) for rival in rivals if rival != learner]
    return 1 + sum(one < own for one in others) + 0.5 * sum(one == own for one in others)


def tabulate(figures: Figures, streams: dict[str, float], learners: list[str], score: str) -> Table:
    """Lay out one score: streams below each other, the best of the ranked ones in bold."""
    table = Table("stream", "rho", *learners, title=score.upper(), title_justify="left")
    ranked = [learner for learner in learners if learner not in REFERENCES]
    for stream, rho in streams.items():
        values = {learner: getattr(figures[stream][learner], score) for learner in learners}
        best = min(values[learner] for learner in ranked)
        cells = [
            _show(value, is_best=name in ranked and value == best) for name, value in values.items()
        ]
        table.add_row(stream, f"{rho:.2f}", *cells)
    return table


def _show(value: float, *, is_best: bool) -> str:
    text = show_number(value) if value < 1e9 else "diverged"
    return f"[bold]{text}[/bold]" if is_best else text


def sum_up(figures: Figures, streams: list[str], learners: list[str], title: str) -> Table:
    """Lay out what the ranks and ratios over some streams are, learner by learner."""
    peers = [learner for learner in learners if learner in PEERS]
    table = Table(
        "learner",
        "rank, MAE",
        "rank, RMSE",
        "MAE / best peer's",
        "largest",
        "/ mean's, largest",
        "/ RLS's, largest",
        "leaves",
        "rows/s",
        title=f"{title}: {len(streams)} streams, ranks among {len(peers) + 1}",
        title_justify="left",
    )
    for learner in [name for name in learners if name in OURS] + peers:
        found = [figures[stream] for stream in streams]
        rivals = [*peers, *([] if learner in peers else [learner])]
        own = "dmt" if learner in peers and "dmt" in learners else None
        rivals += [own] if own else []
        ratios = [one[learner].mae / best_of(one, peers) for one in found]
        leaves = [one[learner].leaves for one in found if one[learner].leaves is not None]
        table.add_row(
            learner,
            *(
                f"{fmean(rank(one, learner, rivals, score) for one in found):.2f}"
                for score in ("mae", "rmse")
            ),
            f"{math.exp(fmean(map(math.log, ratios))):.3f}",
            f"{max(ratios):.3f}",
            *(
                f"{max(one[learner].mae / one[reference].mae for one in found):.3f}"
                if reference in learners
                else "-"
                for reference in ("mean", "rls")
            ),
            f"{median(leaves):g}" if leaves else "-",
            f"{median(one[learner].rate for one in found):,.0f}",
        )
    return table


# ---------------------------------------------------------------------- command line
def load(path: Path | None, n_rows: int) -> dict[str, Any]:
    """Return the figures of a file, if they are of as many rows."""
    if path is None or not path.exists():
        return {}
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept["streams"] if kept["rows"] == n_rows else {}


def run_all(
    given: argparse.Namespace, learners: list[str], tell: Callable[[str], None]
) -> tuple[Figures, dict[str, float]]:
    """Run what is not known yet; the file grows with every stream."""
    kept, figures, rhos = load(given.json, given.rows), {}, {}
    for name in given.streams:
        stream = STREAMS[name](given.rows)
        known = kept.get(name, {}).get("learners", {})
        figures[name], rhos[name] = {}, stream.rho
        for learner in learners:
            is_known = learner in known and learner not in given.ours
            found = Result(**known[learner]) if is_known else measure(learner, stream)
            figures[name][learner] = found
            if not is_known:
                tell(f"{name}, {learner}: MAE {show_number(found.mae)}, {found.rate:,.0f} rows/s")
        everything = known | {learner: one._asdict() for learner, one in figures[name].items()}
        kept[name] = {"rows": len(stream.y), "rho": round(stream.rho, 3), "learners": everything}
        if given.json is not None:
            text = json.dumps({"rows": given.rows, "streams": kept}, indent=1)
            given.json.write_text(text + "\n", encoding="utf-8")
    return figures, rhos


def main() -> None:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=names([*STREAMS]), default=[*STREAMS])
    parser.add_argument("--ours", type=names(OURS), default=["dmt"], help="always run again")
    parser.add_argument("--peers", type=names(PEERS), default=[*SINGLE])
    parser.add_argument("--references", type=names(REFERENCES), default=[*REFERENCES])
    parser.add_argument("--rows", type=int, default=10_000, help="of each stream, the first")
    parser.add_argument("--json", type=Path, help="file to keep the figures in")
    given = parser.parse_args()
    peers = given.peers
    known = load(given.json, given.rows)
    is_kept = all(
        peer in known.get(name, {}).get("learners", {})
        for name in given.streams
        for peer in given.peers
        if peer in MOAS
    )
    if not is_kept:
        try:
            capymoa_peers.load("regressor")
        except ImportError as error:
            peers = [peer for peer in peers if peer not in MOAS]
            print(error, file=sys.stderr)
    learners = [*given.ours, *peers, *given.references]
    console = Console(width=220)
    figures, rhos = run_all(given, learners, lambda line: print(line, file=sys.stderr, flush=True))
    for score in ("mae", "rmse"):
        console.print(tabulate(figures, rhos, learners, score))
    is_like_last = {name: rho >= AUTOCORRELATED for name, rho in rhos.items()}
    parts = {
        "All": [*rhos],
        f"rho below {AUTOCORRELATED}": [name for name in rhos if not is_like_last[name]],
        f"rho {AUTOCORRELATED} or more": [name for name in rhos if is_like_last[name]],
    }
    for title, streams in parts.items():
        if streams and peers:
            console.print(sum_up(figures, streams, learners, title))


if __name__ == "__main__":
    main()
