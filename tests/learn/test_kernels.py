"""The kernels equal the oracle's pieces; every instruction set gives the same bits."""

import ast
import math
import os
import subprocess
import sys
from copy import copy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree import DynamicModelTreeClassifier
from driftree.learn import _kernels, tree
from driftree.learn._kernels import MAX_LEVELS
from naive.inputs import mix64
from quick import (
    SETTINGS,
    QuickNaiveTree,
    columns_in_order,
    examples,
    make_engine,
    make_tree,
    part_of,
    pieces,
)

pytestmark = pytest.mark.usefixtures("quick_pace")

COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "tiny": lambda rng, n: 1e-9 * rng.normal(size=n),
    "huge": lambda rng, n: 1e9 * (1000 + rng.normal(size=n)),
    "heavy": lambda rng, n: rng.standard_cauchy(size=n),
    "constant": lambda rng, n: np.full(n, 0.1 * rng.integers(1, 9)),
    "zero": lambda rng, n: np.zeros(n),
    "bits": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "few": lambda rng, n: rng.integers(-2, 3, n).astype(float),
    "missing": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    "levels": lambda rng, n: np.minimum(rng.geometric(0.1, n) - 1, MAX_LEVELS).astype(float),
}


class OneNode(QuickNaiveTree):
    """An oracle that never changes its structure; a step is what it is given."""

    CHUNK, RENEW = 10**9, np.inf

    def floor_is_due(self):
        return False


class Pair:
    """An engine and an oracle of one node, fed with the same rows."""

    def __init__(self, setting, kinds, n_classes, **parameters):
        self.kinds = kinds
        levels = [j for j, kind in enumerate(kinds) if kind == "levels"]
        parameters = {"setting": setting, "max_nodes": 1, **parameters}
        if setting == "measured":
            parameters = {"model_window": 60, "bins": 6, **parameters}
        self.oracle = OneNode(len(kinds), n_classes, categorical=levels, **parameters)
        self.tree = make_tree(n_classes, **parameters)
        self.engine = self.tree.engine
        for kind in kinds:
            is_level = kind == "levels"
            self.engine.add_feature(is_level, not is_level or setting == "paper")

    def learn(self, X, y, w):
        self.oracle.learn(X, y, w)
        known = len(self.engine.missing_column)
        assert known == X.shape[1]
        for kind, j, *code in self.oracle.columns[self.engine.n_columns :]:
            self.engine.add_level(j, *code) if kind == "level" else self.engine.add_missing(j)
        self.tree.finish()
        self.engine.learn(X, y.astype(np.int32), w)

    @property
    def columns(self):
        return columns_in_order(self.engine, self.oracle)


def make_rows(seed, kinds, n_classes, n_rows=120):
    """Rows, labels that depend on them a little, and weights in quarters."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([COLUMNS[kind](rng, n_rows) for kind in kinds])
    score = np.nan_to_num(X[:, 0]) > np.nanmedian(X[:, 0])
    y = np.where(rng.random(n_rows) < 0.7, score, rng.integers(0, n_classes, n_rows))
    return X, y.astype(np.int32), rng.integers(1, 5, n_rows) / 4


def near(actual, expected, rel=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rel, atol=rel)


kinds = st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=9)
some_rows = {
    "kinds": kinds,
    "n_classes": st.sampled_from([2, 3, 5]),
    "seed": st.integers(0, 10**6),
    "size": st.sampled_from([1, 13, 60]),
}


# ---------------------------------------------------------------------- simple models
@pytest.mark.parametrize("setting", SETTINGS)
@examples(30)
@given(**some_rows)
def test_simple_model_equals_oracle(setting, kinds, n_classes, seed, size):
    """Adagrad, Newton and their blend, or SGD: weights, losses, link, scaling, visiting order."""
    X, y, w = make_rows(seed, kinds, n_classes)
    pair = Pair(setting, kinds, n_classes, seed=seed)
    engine, oracle = pair.engine, pair.oracle
    for rows in pieces(len(X), size):
        pair.learn(X[rows], y[rows], w[rows])
    near(engine.weights(0)[:, pair.columns], oracle.root.model.W)
    near(engine.logits(X), oracle.logits(X))
    near(engine.probabilities(X), oracle.predict_proba(X))
    near(engine.own_loss[0], oracle.root.own_loss or oracle.root.loss)
    assert engine.rows[0] == w.sum() == engine.clock
    if setting == "measured":
        matrix = engine.curvature_inverse(engine.model[0])
        near(matrix[np.ix_(pair.columns, pair.columns)], oracle.root.model.A)


@pytest.mark.parametrize("size", [60, 120])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_who_was_too_sure_shrinks_as_the_oracle_does(n_classes, size):
    """Rows near an edge, and few far from it, make weights large; then the labels change."""
    rng = np.random.default_rng(1)
    n_rows, n_past = 720, 600
    far = np.where(rng.random(n_rows) < 0.03, 1.0, 0.1)[:, None]
    X = far * 10.0 ** rng.uniform(-1, 0, (n_rows, 2)) * rng.choice([-1, 1], (n_rows, 2))
    X[n_past:] *= 10
    y = (X > 0).sum(axis=1) if n_classes == 3 else (X[:, 0] > 0).astype(int)
    y[n_past:] = (y[n_past:] + 1) % n_classes
    w = np.where(rng.random(n_rows) < 0.2, 0.5, 1.0)
    pair = Pair("measured", ["normal", "normal"], n_classes, model_window=1000)
    model = pair.oracle.root.model
    factors = []
    humility = model.humility
    model.humility = lambda steps: factors.append(humility(steps)) or factors[-1]
    for rows in pieces(n_rows, size):
        pair.learn(X[rows], y[rows], w[rows])
        near(pair.engine.weights(0)[:, pair.columns], model.W)
        near(pair.engine.challenger_gain, pair.oracle.floor_gain)
    assert 0.0 < min(factors) < 0.9


@examples(15)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 20]), adopt_at=st.integers(0, 80))
def test_noise_floor_equals_oracle(seed, size, adopt_at):
    """The challenger's floor by EM, the link that a tree takes over, and its link once more."""
    X, y, w = make_rows(seed, ["normal", "few"], 2)
    pair = Pair("measured", ["normal", "few"], 2)
    engine, oracle = pair.engine, pair.oracle
    for rows in pieces(len(X), size):
        if rows.start <= adopt_at < rows.stop or rows.start == 100:
            engine.adopt_challenger()
            oracle.flip_floor()
        pair.learn(X[rows], y[rows], w[rows])
        for model, twin in (
            (engine.model[0], oracle.root.model),
            (engine.challenger, oracle.challenger),
        ):
            near(engine.floor(model), (0, 0) if twin.rho is None else twin.rho)
    near(engine.challenger_gain, oracle.floor_gain)
    near(engine.probabilities(X), oracle.predict_proba(X))


def test_noise_floor_is_at_most_one_half():
    """A label that the model is sure is wrong is blamed on the floor, but not without end."""
    engine = make_engine(1)
    X, w = np.ones((200, 1)), np.ones(200)
    for label in [0] * 5 + [1] * 300:
        engine.learn(X, np.full(200, label, np.int32), w)
        floor = engine.floor(engine.challenger)
        assert min(floor) > 0
        assert sum(floor) <= 0.5 + 1e-12


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_first_row_takes_the_spare_columns_back(setting, n_classes):
    """Columns that come before it leave room to spare; those after it find the models whole."""
    kinds = ["normal"] * 49
    pair = Pair(setting, kinds, n_classes)
    X, y, w = make_rows(9, kinds, n_classes, n_rows=60)
    engine, oracle = pair.engine, pair.oracle
    assert (engine.n_columns, engine.stride) == (50, 64)
    pair.learn(X[:20], y[:20], w[:20])
    assert (engine.n_columns, engine.stride) == (50, 56)
    near(engine.weights(0), oracle.root.model.W)
    X[20::3, ::4] = np.nan  # 13 more columns
    for rows in (slice(20, 40), slice(40, 60)):
        pair.learn(X[rows], y[rows], w[rows])
    assert (engine.n_columns, engine.stride) == (63, 72)
    near(engine.weights(0)[:, pair.columns], oracle.root.model.W)
    near(engine.logits(X), oracle.logits(X))


# ---------------------------------------------------------------------- order and scaling
def test_mix64_is_splitmix64():
    """The first two values that Vigna's generator gives for seed 0."""
    assert mix64(0) == 0xE220A8397B1DCDAF
    assert mix64(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


@pytest.mark.parametrize("setting", SETTINGS)
def test_order_of_rows_depends_on_values_and_seed_alone(setting):
    X, y, w = make_rows(1, ["normal", "missing", "bits"], 2)
    engines = []
    for seed, order in ((1, slice(None)), (1, slice(None, None, -1)), (2, slice(None))):
        engine = make_engine(3, setting=setting, seed=seed)
        engine.add_missing(1)
        engine.learn(X[order].copy(), y[order].copy(), w[order].copy())
        engines.append(engine.weights(0))
    assert np.array_equal(engines[0], engines[1])
    assert not np.array_equal(engines[0], engines[2])


def test_zeros_and_missing_values_have_one_hash_each():
    """Minus zero is zero, and NaN of any sign and payload is missing: the order is the same."""
    rng = np.random.default_rng(3)
    X = rng.choice([0.0, np.nan, 1.0, 2.0], size=(50, 4))
    other = np.where(X == 0, -0.0, X)
    other.view(np.uint64)[np.isnan(X)] |= 0x8000000000000123
    y = rng.integers(0, 2, 50).astype(np.int32)
    weights = []
    for rows in (X, other):
        engine = make_engine(4)
        for j in range(4):
            engine.add_missing(j)
        engine.learn(rows, y, np.ones(50))
        weights.append(engine.weights(0))
    assert np.array_equal(*weights)


@pytest.mark.parametrize("setting", SETTINGS)
@examples(30)
@given(kind=st.sampled_from(sorted(set(COLUMNS) - {"levels"})), seed=st.integers(0, 10**6))
def test_scaled_inputs_equal_oracle(setting, kind, seed):
    """z = (x - shift) * factor, clipped in our setting; bits pass, constants are zero."""
    X, y, w = make_rows(seed, [kind], 2)
    pair = Pair(setting, [kind], 2)
    for rows in pieces(len(X), 30):
        pair.learn(X[rows], y[rows], w[rows])
    z = (np.nan_to_num(X[:, 0]) - pair.engine.scale_shift[0]) * pair.engine.scale_factor[0]
    if setting == "measured" and kind not in ("bits", "zero"):
        z = np.clip(z, -1.5, 1.5)
    present = ~np.isnan(X[:, 0])
    near(z[present], pair.oracle.inputs(X)[present, 1])


# ---------------------------------------------------------------------- grid
@examples(40)
@given(**some_rows)
def test_grid_and_proposals_equal_oracle(kinds, n_classes, seed, size):
    """Edges, slots, counts, gradients (single precision), and the best split per feature."""
    X, y, w = make_rows(seed, kinds, n_classes)
    pair = Pair("measured", kinds, n_classes)
    engine, oracle = pair.engine, pair.oracle
    for rows in pieces(len(X), size):
        pair.learn(X[rows], y[rows], w[rows])
        pair.tree.decide()  # chooses the grid, and cannot split
    first_slots, counts, gradients = engine.grid_sums(0)
    near(counts, np.concatenate([grid.count for grid in oracle.root.grid]))
    expected = np.concatenate([grid.gradient for grid in oracle.root.grid])
    near(gradients[:, :, pair.columns], expected, rel=1e-4)
    near(np.add.reduceat(counts, first_slots[:-1]), counts.sum() / len(kinds))

    best, scores = {}, {}
    for score, split, slot, n in oracle.proposals(oracle.root):
        best.setdefault(split.feature, score)
        scores[split.feature, split.value, split.missing_left] = score, slot, n[0] / sum(n)
    proposals = engine.proposals(0)
    assert [p[1] for p in proposals] == sorted(best)
    for score, feature, threshold, equality, missing_left, slot, share in proposals:
        near(score, best[feature], rel=1e-4)
        assert equality == (kinds[feature] == "levels" and threshold != -math.inf)
        ways = [missing_left, not missing_left]  # as many left as right: either way for missing
        key = next(key for way in ways if (key := (feature, threshold, way)) in scores)
        own_score, own_slot, own_share = scores[key]
        near(own_score, best[feature], rel=1e-4)
        assert slot - first_slots[feature] == own_slot
        near(share, own_share)


def forget_implied(engine):
    """Choose the same grid once more: without first rows, no slot is implied."""
    slots = np.diff(part_of(engine, "grid.first_slot", 0)).tolist()
    engine.choose_grid(0, np.array(slots, dtype=np.int32), part_of(engine, "grid.edges", 0))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("lasts", [True, False])
def test_implied_slots_give_the_proposals_of_explicit_ones(lasts, n_classes):
    """Also long after the value that most first rows had has gone for good."""
    rng, n_rows = np.random.default_rng(8), 6000
    rare = rng.random((n_rows, 4)) < (0.15 if lasts else np.arange(n_rows)[:, None] / 600)
    often = [0.0, -1.0, 0.0, np.nan]  # a bottom slot, another, a level, missing
    X = np.where(rare, rng.integers(1, 6, (n_rows, 4)), often)
    X[:, 1] += rare[:, 1] * rng.choice([-7, 0], n_rows)
    y = (rng.random(n_rows) < np.where(rare.sum(axis=1) > 1, 0.7, 0.3)).astype(np.int32)
    implied, explicit = (
        Pair("measured", ["normal", "normal", "levels", "normal"], n_classes, evidence_window=100)
        for _ in range(2)
    )
    for rows in pieces(n_rows, 15):  # of which the first choose the grid
        for pair in (implied, explicit):
            for j, code in [(2, code) for code in range(6)] if rows.start == 0 else []:
                pair.engine.add_level(j, code)
            pair.engine.add_missing(3) if rows.start == 0 else None
            pair.engine.learn(X[rows], y[rows], np.ones(15))
            pair.tree.evidence.refresh(0, may_split=False)
        if rows.start == 0:
            forget_implied(explicit.engine)
            assert (part_of(implied.engine, "grid.implied", 0) >= 0).all()
            assert (part_of(explicit.engine, "grid.implied", 0) < 0).all()
            continue
        for sums in zip(implied.engine.grid_sums(0), explicit.engine.grid_sums(0), strict=True):
            near(*sums, rel=1e-5)
        one, other = implied.engine.proposals(0), explicit.engine.proposals(0)
        assert [proposal[1] for proposal in one] == [proposal[1] for proposal in other]
        near([proposal[0] for proposal in one], [proposal[0] for proposal in other], rel=1e-4)


def test_a_barred_slot_is_not_proposed():
    pair = Pair("measured", ["normal"], 2, max_nodes=3)
    X, y, w = make_rows(5, ["normal"], 2)
    for rows in pieces(len(X), 20):
        pair.learn(X[rows], y[rows], w[rows])
        pair.tree.evidence.refresh(0, may_split=False)
    engine = pair.engine
    (first,) = engine.proposals(0)
    engine.start_trial(0, *first[1:])
    engine.drop_trial(0, engine.rows[0] + 1)
    (second,) = engine.proposals(0)
    assert second[5] != first[5]
    assert second[0] <= first[0]
    pair.learn(X[:10], y[:10], np.ones(10))
    assert first[5] in {second[5], engine.proposals(0)[0][5]}


# ---------------------------------------------------------------------- the paper's candidates
@examples(20)
@given(**some_rows, rate=st.sampled_from([0.0, 0.3, 1.0]))
def test_candidate_store_equals_oracle(kinds, n_classes, seed, size, rate):
    X, y, w = make_rows(seed, kinds, n_classes, n_rows=60)
    pair = Pair("paper", kinds, n_classes, gain_step=0.5, replacement_rate=rate)
    for rows in pieces(len(X), size):
        pair.learn(X[rows], y[rows], w[rows])
        stored = {(j, value): rest for _, j, value, *rest in pair.engine.stored_candidates(0)}
        gains = {(j, value): gain for gain, j, value, *_ in pair.engine.stored_candidates(0)}
        windows = pair.oracle.root.store
        assert len(pair.engine.stored_candidates(0)) <= 3 * len(kinds)
        assert stored.keys() == windows.keys()
        for key, window in windows.items():
            near(gains[key], window.gains(0.5).sum())
            near(stored[key], [*window.n, window.loss.sum()])


@pytest.mark.parametrize(
    "kinds", [["heavy", "missing"], ["huge", "few", "levels"], ["bits", "normal"]]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_candidate_store_of_large_batches_equals_oracle(kinds, n_classes):
    """Most values of a large batch are ruled out by bounds; those that count must not be."""
    X, y, w = make_rows(5, kinds, n_classes, n_rows=2000)
    w = np.where(w < 1, 0.5, 1.0)
    pair = Pair("paper", kinds, n_classes, gain_step=0.5, replacement_rate=0.5)
    for rows in (*pieces(1800, 600), slice(1800, 1801), slice(1801, 2000)):
        pair.learn(X[rows], y[rows], w[rows])
        gains = {(j, value): gain for gain, j, value, *_ in pair.engine.stored_candidates(0)}
        windows = pair.oracle.root.store
        assert gains.keys() == windows.keys()
        for key, window in windows.items():
            near(gains[key], window.gains(0.5).sum())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_looking_at_candidates_changes_nothing(n_classes):
    """Rows that wait to be added are added when someone looks, with the same bits."""
    X, y, w = make_rows(3, ["normal", "few", "missing", "levels"], n_classes, n_rows=300)
    engines = []
    for every in (1, 7, 1000):
        pair = Pair("paper", ["normal", "few", "missing", "levels"], n_classes, gain_step=0.5)
        engines.append(pair.engine)
        pair.engine.add_missing(2)
        for i in range(len(X)):
            pair.engine.learn(X[i : i + 1], y[i : i + 1], w[i : i + 1])
            if i % every == 0:
                pair.engine.stored_candidates(0)
    assert same_arrays(engines[0].arrays(), engines[1].arrays())
    assert same_arrays(engines[0].arrays(), engines[2].arrays())


def test_a_candidate_is_not_evicted_and_stored_again_in_one_step():
    """What a step evicts is not new in the same step: its window would start afresh."""
    pair = Pair("paper", ["few", "normal"], 2, gain_step=0.5, replacement_rate=1.0, candidates=1)
    X, y, w = make_rows(0, ["few", "normal"], 2, n_rows=400)
    for rows in pieces(len(X), 8):
        pair.learn(X[rows], y[rows], w[rows])
        stored = {(j, value) for _, j, value, *_ in pair.engine.stored_candidates(0)}
        assert stored == pair.oracle.root.store.keys(), rows


@examples(20)
@given(seed=st.integers(0, 10**6), n_classes=st.sampled_from([2, 3]))
def test_children_by_gradient_step(seed, n_classes):
    """(6) and (7): theta - lambda / n gradient; the children's losses sum to L - G."""
    kinds = ["normal", "few"]
    X, y, w = make_rows(seed, kinds, n_classes)
    pair = Pair("paper", kinds, n_classes, gain_step=0.5, max_nodes=3)
    for rows in pieces(len(X), 40):
        pair.learn(X[rows], y[rows], w[rows])
    engine, root = pair.engine, pair.oracle.root
    place, (gain, *key) = next(
        (place, (gain, feature, value))
        for place, (gain, feature, value, *n, _) in enumerate(engine.stored_candidates(0))
        if min(n) > 0
    )
    window = root.store[tuple(key)]
    engine.split(0, place)
    children = [engine.left[0], engine.right[0]]
    for child, n, gradient in zip(children, window.n, window.gradient, strict=True):
        near(engine.weights(child), root.model.W - 0.5 / n * gradient)
        assert engine.rows[child] == 0
    near(engine.own_loss[children].sum(), engine.own_loss[0] - gain)
    near(engine.subtree_loss[0], engine.own_loss[0] - gain)


# ---------------------------------------------------------------------- long lives
LONG_STREAMS = {
    "plain": (["normal", "normal", "normal"], 1.0),
    "zero and constant columns": (["zero", "normal", "constant"], 1.0),
    "all constant": (["constant", "zero", "constant"], 1.0),
    "huge scales": (["huge", "heavy", "tiny"], 1e100),
    "rare bits": (["bits", "zero", "missing"], 1.0),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", LONG_STREAMS)
def test_curvature_inverse_stays_symmetric_and_positive_definite(name, n_classes):
    kinds, scale = LONG_STREAMS[name]
    engine = make_engine(3, n_classes, model_window=1000)
    for j in range(3):
        engine.add_missing(j)
    X, y, w = make_rows(7, kinds, n_classes, n_rows=100_000)
    X *= scale
    models = [int(engine.model[0])] + ([engine.challenger] if n_classes == 2 else [])
    for i, rows in enumerate(pieces(len(X), 200)):
        engine.learn(X[rows], y[rows], w[rows])
        for model in models if i % 50 == 49 else []:
            matrix = engine.curvature_inverse(model)
            assert np.array_equal(matrix, matrix.T)
            assert np.linalg.eigvalsh(matrix).min() > 0
    assert np.isfinite(engine.weights(0)).all()
    assert np.isfinite(engine.own_loss[0])


# ---------------------------------------------------------------------- instruction sets
LEARN_AND_HASH = """
import hashlib
import numpy as np
from driftree import DynamicModelTreeClassifier
from driftree.learn._kernels import instruction_set

digest = hashlib.sha256()
rng = np.random.default_rng(1)
for setting in ("measured", "paper"):
    for n_features, n_classes in ((2, 2), (3, 3), (45, 2), (140, 2)):
        X = rng.normal(size=(4000, n_features))
        X[:, -1] = rng.integers(0, 40, 4000)
        y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        y = np.where(rng.random(4000) < 0.1, rng.integers(0, n_classes, 4000), y)
        X[rng.random(X.shape) < 0.01] = np.nan
        model = DynamicModelTreeClassifier(
            setting=setting,
            categorical=(n_features - 1,),
            epsilon=1e-3,
            gain_step=0.5 if setting == "paper" else None,
        )
        for start in range(0, 4000, 500):
            model.partial_fit(X[start : start + 500], y[start : start + 500])
            digest.update(model.predict_proba(X).tobytes())
        digest.update(repr(model.events_).encode())
        assert model.events_ or n_features > 3, (setting, n_features)
print(instruction_set(), digest.hexdigest())
"""


def run_with(isa, program):
    environment = {**os.environ, "DRIFTREE_ISA": isa}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def baseline_hash():
    name, digest = run_with("baseline", LEARN_AND_HASH).stdout.split()
    assert name == "baseline"
    return digest


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_instruction_sets_give_the_same_bits(isa, baseline_hash):
    run = run_with(isa, LEARN_AND_HASH)
    if "this machine must have it" in run.stderr or run.stdout.startswith("baseline"):
        pytest.skip(f"this machine or build has no {isa}")
    assert run.stdout.split() == [isa, baseline_hash], run.stderr


# ---------------------------------------------------------------------- state
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_restored_engine_goes_on_as_if_nothing_happened(setting, n_classes):
    X, _, w = make_rows(11, ["normal", "normal", "missing"], n_classes, n_rows=600)
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(np.int32)
    y[::50] = n_classes - 1
    own = {"measured": {"bins": 8}, "paper": {"gain_step": 2.0}}[setting]
    parameters = {"setting": setting, "epsilon": 0.5, **own}
    model = DynamicModelTreeClassifier(**parameters).partial_fit(X[:300], y[:300])
    tree = model._tree
    arrays = tree.engine.arrays()
    assert tree.n_nodes > 1
    kept = {name: array.copy() for name, array in arrays.items()}
    other = make_tree(**parameters)
    other.restore({"arrays": arrays, "history": copy(tree.history)})
    other.finish()
    for rows in pieces(300, 20):
        for one in (tree, other):
            one.learn(X[300:][rows], y[300:][rows], w[300:][rows])
    assert same_arrays(tree.engine.arrays(), other.engine.arrays())
    assert not same_arrays(tree.engine.arrays(), arrays)
    assert same_arrays(arrays, kept)  # copies: what was taken out stays as it was


def same_arrays(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        for name in one
    )


def test_restoring_an_incomplete_state_says_what_is_missing():
    arrays = make_engine(2).arrays()
    del arrays["sums.own_loss"]
    with pytest.raises(ValueError, match=r"sums\.own_loss"):
        make_engine(2).restore(arrays)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n_features", [3, 30])
def test_memory_usage_grows_as_the_formula(n_features, n_classes):
    """A trial is two models of 3 outputs x stride + stride^2 doubles; a slot of the grid has
    three doubles and outputs x stride floats."""
    pair = Pair("measured", ["normal"] * n_features, n_classes, max_nodes=3, max_bends=0)
    engine = pair.engine
    X, y, w = make_rows(1, pair.kinds, n_classes)
    engine.learn(X[:20], y[:20], w[:20])
    before = engine.memory_usage()
    pair.tree.evidence.refresh(0, may_split=False)
    counts = engine.grid_sums(0)[1]
    weights = engine.n_outputs * engine.stride
    first_rows = 8 * 15 * n_features
    grid = engine.memory_usage() - before
    assert grid == pytest.approx(
        len(counts) * (3 * 8 + 4 * weights) - first_rows, rel=0.1, abs=4096
    )

    engine.learn(X[20:], y[20:], w[20:])
    before = engine.memory_usage()
    engine.start_trial(0, *engine.proposals(0)[0][1:])
    models = engine.memory_usage() - before
    assert models == pytest.approx(2 * 8 * (3 * weights + engine.stride**2), rel=0.1, abs=1536)
    assert engine.memory_usage() >= sum(array.nbytes for array in engine.arrays().values())


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_pruned_gives_its_memory_back(setting):
    X, y, w = make_rows(3, ["normal"] * 20, 2)
    engine = make_engine(20, setting=setting, max_nodes=3)
    engine.learn(X, y, w)
    sizes = []
    for _ in range(3):
        if setting == "paper":
            gains = [(-gain, place) for place, (gain, *_) in enumerate(engine.stored_candidates(0))]
            engine.split(0, min(gains)[1])
        else:
            engine.start_trial(0, 0, 0.0, False, False, -1, 0.5)
            engine.split(0, 0)
        engine.learn(X, y, w)
        engine.prune(0)
        sizes.append(engine.memory_usage())
    assert sizes[0] == pytest.approx(sizes[2], rel=0.03)  # some rows are kept


def test_paper_models_are_small():
    sizes = [make_engine(m, setting="paper", max_nodes=1).memory_usage() for m in (7, 1007)]
    assert sizes[1] - sizes[0] == pytest.approx(1000 * (2 * 8 + 9 * 8 + 33 * 4), rel=0.5)


# ---------------------------------------------------------------------- refusals and the typed face
def test_rows_that_do_not_fit_are_refused():
    engine = make_engine(2)
    X, y, w = np.zeros((3, 2)), np.zeros(3, np.int32), np.ones(3)
    with pytest.raises(ValueError, match="one value per feature"):
        engine.learn(X[:, :1].copy(), y, w)
    with pytest.raises(ValueError, match="more values than there are features"):
        engine.probabilities(np.zeros((3, 3)))
    narrow = engine.probabilities(np.ones((3, 1)))  # a feature has come since they were read
    np.testing.assert_array_equal(narrow, engine.probabilities(np.array([[1, np.nan]] * 3)))
    with pytest.raises(ValueError, match="same length"):
        engine.learn(X, y[:2], w)
    for code in (-1, 2):
        with pytest.raises(ValueError, match="out of range"):
            engine.learn(X, np.full(3, code, np.int32), w)
    assert engine.n_rows == engine.n_steps == 0


def test_an_unknown_instruction_set_is_refused():
    run = run_with(
        "mmx", "from driftree.learn._kernels import instruction_set; print(instruction_set())"
    )
    not_an_x86 = run.stdout == "baseline\n"  # there is no other
    assert not_an_x86 or "DRIFTREE_ISA must be baseline, avx2 or avx512" in run.stderr


def body_of(item, classes):
    for base in item.bases:
        yield from body_of(classes[base.id], classes)
    yield from item.body


def test_the_typed_face_names_what_the_module_has():
    stub = ast.parse(Path(tree.__file__).with_name("_kernels.pyi").read_text())
    classes = {item.name: item for item in stub.body if isinstance(item, ast.ClassDef)}
    assert {name for name in classes if name[0] != "_"} == {
        name
        for name, item in vars(_kernels).items()
        if type(item) is not int and isinstance(item, type)
    }
    for name, item in classes.items():
        if name[0] == "_":
            continue
        body = list(body_of(item, classes))
        typed = {line.name for line in body if isinstance(line, ast.FunctionDef)}
        typed |= {line.target.id for line in body if isinstance(line, ast.AnnAssign)}
        assert {n for n in typed if n[0] != "_"} == {
            n for n in dir(getattr(_kernels, name)) if n[0] != "_"
        }
