"""Work that is saved: rest, one pass of Adagrad where Newton leads, one trial in an old leaf."""

import math
from itertools import pairwise

import numpy as np
import pytest

from driftree.learn import constants
from naive.inputs import mix64, visiting_order
from naive.models import BlendModel, Habits
from quick import (
    PARAMETERS,
    alter,
    make_engine,
    make_tree,
    of_setting,
    part_of,
    pieces,
    set_pace,
    trials_of,
)

pytestmark = pytest.mark.usefixtures("quick_pace")

N_BITS, WINDOW = 5, 300.0


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def draw_rows(rng, n_rows):
    """Zeros and ones, which are inputs as they are; labels; weights in quarters."""
    X = rng.integers(0, 2, (n_rows, N_BITS)).astype(float)
    y = (X[:, 0] != X[:, 1]) ^ (rng.random(n_rows) < 0.2)
    return X, y.astype(np.int32), rng.integers(1, 9, n_rows) / 4


@pytest.fixture(autouse=True)
def calm(monkeypatch, quick_pace):
    """Trees that are calm from the start, and stay so."""
    set_pace(monkeypatch, alarm_factor=math.inf, restless_share=0.0)


def make_branch(**parameters):
    """An engine with a split whose root rests, and a trial there; nobody decides about them."""
    tree = make_tree(max_nodes=3, **{"evidence_window": WINDOW, **parameters})
    engine = tree.engine
    for _ in range(N_BITS):
        engine.add_feature(False, True)
    engine.start_trial(0, 0, 0.5, False, False, -1, 0.5)
    engine.split(0, 0)
    engine.start_trial(0, 1, 0.5, False, False, -1, 0.5)
    alter(tree, {("sums.recent", 0): 1e100, ("restless_until", 0): 0.0})
    engine.set_levels(
        0, split=math.inf, prune=math.inf, replace=math.inf, rest=-math.inf, n_splits=0
    )
    return engine


def in_quarter(X, seed, n_rows):
    """Which rows of a step the resting look at, when the stream has `n_rows` rows with them."""
    seen = np.zeros(len(X), dtype=bool)
    for place, row in enumerate(visiting_order(X, seed)):
        seen[row] = mix64((seed + n_rows - place) % 2**64) % 4 == 0
    return seen


def figure(engine, name):
    """A figure of the root, or of its trial."""
    of, _, field = name.rpartition(" ")
    return getattr(trials_of(engine, 0)[0] if of else engine.node(0), field)


def losses(logits, y):
    return np.logaddexp(0, np.where(y == 1, -logits, logits))


# ---------------------------------------------------------------------- rest
@pytest.mark.parametrize("seed", [1, 2**40])
@pytest.mark.parametrize("size", [1, 7, 200])
def test_who_rests_looks_at_a_random_quarter_and_counts_it_four_times(size, seed):
    engine, rng = make_branch(seed=seed), np.random.default_rng(size)
    engine.challenger_level = -math.inf  # whatever it earns
    n_seen = 0
    for _ in range(5 if size > 1 else 80):
        X, y, w = draw_rows(rng, size)
        seen, right = in_quarter(X, seed, engine.n_rows + size), X[:, 1] > 0.5
        n_seen += seen.sum()
        own = losses(engine.weights(0)[0] @ engine.inputs(X).T, y)
        below = losses(engine.logits(X)[:, 0], y)
        sums = {
            **{"own_loss": own, "subtree_loss": below, "evidence": np.ones(size)},
            **{
                "trial node_loss": own,
                "trial subtree_loss": below,
                "trial evidence": np.ones(size),
            },
        }
        before = {name: figure(engine, name) for name in (*sums, "rows")}
        sides = figure(engine, "trial n_left"), figure(engine, "trial n_right")
        others = engine.class_rows(0), engine.rival_loss, engine.challenger_rows
        weights = engine.weights(0)

        engine.learn(X, y, w)

        keep = math.exp(-w.sum() / WINDOW)
        for name, loss in sums.items():
            near(figure(engine, name), keep * before[name] + 4 * (w * loss)[seen].sum())
        near(engine.rival_loss, keep * others[1] + 4 * (w * below)[seen].sum())
        near(engine.challenger_rows, keep * others[2] + 4 * w[seen].sum())
        assert figure(engine, "trial n_left") == sides[0] + w[seen & ~right].sum()
        assert figure(engine, "trial n_right") == sides[1] + w[seen & right].sum()
        assert engine.rows[0] == before["rows"] + w.sum()
        near(engine.class_rows(0), keep * others[0] + np.bincount(y, w, minlength=2))
        assert np.array_equal(weights, engine.weights(0)) == (not seen.any())
    assert 0 < n_seen < engine.n_rows / 2


def test_trials_that_rest_with_their_node_only_fade(monkeypatch):
    set_pace(monkeypatch, alarm_factor=math.inf, restless_share=0.0, trials_rest=True)
    engine, rng = make_branch(), np.random.default_rng(1)
    figures = ("trial node_loss", "trial subtree_loss", "trial trial_loss", "trial evidence")
    engine.set_levels(
        0, split=math.inf, prune=math.inf, replace=math.inf, rest=math.inf, n_splits=0
    )
    engine.learn(*draw_rows(rng, 50))  # awake
    engine.set_levels(
        0, split=math.inf, prune=math.inf, replace=math.inf, rest=-math.inf, n_splits=0
    )
    assert engine.node(0).trials_rest
    before = [figure(engine, name) for name in figures]
    assert min(before) > 0
    X, y, w = draw_rows(rng, 50)
    engine.learn(X, y, w)
    near([figure(engine, name) for name in figures], np.exp(-w.sum() / WINDOW) * np.array(before))


def rows_at(engine, X):
    """Which rows reach each node."""
    found = {}
    for row, leaf in enumerate(engine.leaves(X).tolist()):
        node = leaf
        while node >= 0:
            found.setdefault(node, np.zeros(len(X), dtype=bool))[row] = True
            node = int(engine.parent[node])
    return found


@pytest.mark.parametrize("size", [1, 20])
def test_a_node_rests_as_long_as_its_branch_earns_enough(size):
    """It falls asleep, and wakes when the branch is worth less; leaves never sleep."""
    tree, rng = make_tree(**of_setting("measured", max_bends=0)), np.random.default_rng(3)
    engine, window = tree.engine, PARAMETERS["evidence_window"]
    for _ in range(2):
        engine.add_feature(False, True)
    tree.finish()
    X = rng.normal(size=(1200, 2))
    y = np.where(np.arange(1200) < 600, (X[:, 0] > 0) ^ (X[:, 1] > 0), X.sum(axis=1) > 0)
    y, w, root_rests = y.astype(np.int32), np.ones(1200), []
    rest_level = 2 * (0.1 * engine.n_columns - math.log(PARAMETERS["epsilon"]))
    for rows in pieces(1200, size):
        reached = rows_at(engine, X[rows])
        quarter = in_quarter(X[rows], 1, engine.n_rows + size)
        earned = engine.own_loss - engine.subtree_loss
        is_far = (rest_level <= earned) & (earned <= 2 * 16 * engine.recent)
        rests = {node: engine.left[node] >= 0 and is_far[node] for node in reached}
        clock, evidence = engine.node_clock.copy(), engine.evidence.copy()
        engine.learn(X[rows], y[rows], w[rows])
        for node, mask in reached.items():
            n_rows = 4 * (mask & quarter).sum() if rests[node] else mask.sum()
            keep = math.exp(-(engine.clock - clock[node]) / window)
            near(engine.evidence[node], keep * evidence[node] + n_rows)
        root_rests.append(bool(rests[0]))
        if engine.has_due:
            tree.decide()
    changes = set(pairwise(root_rests))
    assert {(False, True), (True, True), (True, False)} <= changes


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("period", [2, 4, 8])
def test_labels_that_come_in_turns_do_not_deceive_who_rests(period, seed):
    """Every fourth row would be all ones or all zeros: the model and its loss would be wrong."""
    engine, rng = make_branch(seed=seed, evidence_window=1e9), np.random.default_rng(seed)
    n_rows, loss = 4000, 0.0
    X, _, _ = draw_rows(rng, n_rows)
    y = (np.arange(n_rows) % period == 0).astype(np.int32)
    for i in range(n_rows):
        row = slice(i, i + 1)
        loss += losses(engine.weights(0)[0] @ engine.inputs(X[row]).T, y[row])[0]
        engine.learn(X[row], y[row], np.ones(1))
    assert engine.evidence[0] == pytest.approx(n_rows, rel=0.1)
    assert engine.own_loss[0] == pytest.approx(loss, rel=0.15)
    shares = 1 / (1 + np.exp(-engine.weights(0)[0] @ engine.inputs(X).T))
    assert shares.mean() == pytest.approx(1 / period, abs=0.05)


# ---------------------------------------------------------------------- alarm
@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("size", [1, 20])
def test_a_jump_of_the_loss_ends_all_rest_for_a_while(size, always, monkeypatch):
    """But a node far from any change, as this one always is, rests on in trees with bends."""
    set_pace(
        monkeypatch,
        alarm_factor=1.2,
        restless_share=500 / WINDOW,
        nodes_always_rest=always,
    )
    engine, rng = make_branch(), np.random.default_rng(6)
    calm, shares = [], []
    for start in range(0, 3000, size):
        X, y, _ = draw_rows(rng, size)
        y = (X[:, 0] > 0.5).astype(np.int32) ^ (1000 <= start < 1040)
        before, was_calm = engine.evidence[0], engine.is_calm
        keep = math.exp(-size / WINDOW)
        engine.learn(X, y.astype(np.int32), np.ones(size))
        calm.append(engine.is_calm)
        seen = round(engine.evidence[0] - keep * before, 6)
        shares.append(seen % 4 == 0 if was_calm or always else seen == size)
    assert all(shares)  # every row when restless, fours of rows where it rests
    alarm = 1000 // size + (size == 1)
    assert all(calm[300 // size : alarm - 1])
    assert not any(calm[1060 // size : 1400 // size])
    assert all(calm[2600 // size :])


# ---------------------------------------------------------------------- Adagrad
def adagrad_parts(engine):
    """The root's preference D, and Adagrad's weights and squares."""
    numbers = part_of(engine, "model.numbers", engine.model[0])
    size = engine.n_outputs * engine.stride
    weights, squares = numbers[: 2 * size].reshape(2, engine.n_outputs, engine.stride)
    preference = engine.arrays()["model.preference"][engine.model[0]]
    return preference, weights[:, : engine.n_columns], squares[:, : engine.n_columns]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("size", [1, 20])
def test_adagrad_makes_three_passes_where_it_leads_else_one(size, n_classes):
    engine, rng = make_engine(N_BITS, n_classes, max_nodes=1), np.random.default_rng(4)
    n_passes = []
    for _ in range(60 if size > 1 else 400):
        X, y, w = draw_rows(rng, size)
        y = (y + rng.integers(0, n_classes - 1, size)).astype(np.int32)
        _, weights, squares = adagrad_parts(engine)
        engine.learn(X, y, w)
        preference, now, _ = adagrad_parts(engine)
        twin, after = BlendModel(weights.shape, Habits(1000)), {}
        twin.Wa, twin.Ga = weights.copy(), squares.copy()
        order = visiting_order(X, 1)
        for n in (1, 2, 3):
            for z, label, weight in zip(engine.inputs(X)[order], y[order], w[order], strict=True):
                twin.adagrad(z, label, min(weight, 1.0))
            after[n] = twin.Wa.copy()
        n_passes.append(3 if preference <= (2 if size == 1 else 0) else 1)
        np.testing.assert_allclose(now, after[n_passes[-1]], rtol=1e-6, atol=1e-6)
        assert np.abs(after[1] - after[3]).max() > 1e-5  # either number would show
    assert set(n_passes) == {1, 3}


# ---------------------------------------------------------------------- old leaves
@pytest.mark.parametrize(
    ("is_old", "earning", "n_after"),
    [
        (False, [], 3),
        (False, [False, False], 3),
        (True, [], 1),
        (True, [False], 1),
        (True, [True], 2),
        (True, [True, False], 2),
        (True, [True, True], 3),
        (True, [False, False, False], 3),
    ],
)
def test_an_old_leaf_starts_a_trial_only_if_all_others_earn(is_old, earning, n_after):
    tree = make_tree(max_nodes=3)
    engine, rng = tree.engine, np.random.default_rng(5)
    for _ in range(N_BITS):
        engine.add_feature(False, True)
    X, y, w = draw_rows(rng, 60)
    for rows in pieces(60, 20):
        engine.learn(X[rows], y[rows], w[rows])
        tree.evidence.refresh(0, may_split=False)
    rows = constants.MEASURED.young_rows + is_old
    changes = {("node.rows", 0): rows, ("sums.refresh_at", 0): 0}
    for trial, earns in enumerate(earning):
        engine.start_trial(trial, trial, 0.5, False, False, -1, 0.5)
        changes |= {("trial.node_loss", trial): float(earns), ("trial.born", trial): rows}
    alter(tree, changes)
    tree.evidence.refresh(0, may_split=True)
    assert len(engine.trials(0)) == n_after
    wait = constants.MEASURED.old_refresh_rows if is_old else constants.MEASURED.refresh_rows
    assert engine.node(0).refresh_at == rows + wait
