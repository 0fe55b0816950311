"""The losses of nodes over time: do they tell local from global drift, and noise from drift?"""

import functools
import itertools
import math

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.explain.loss_over_time import LossRise, loss_by_node, loss_course, loss_rises

N_ROWS, CHANGE = 24_000, 15_000


@functools.cache
def learn(where, seed=1):
    """An exclusive or with noise; later another rule for no rows, one half, or all."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N_ROWS, 4))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    is_turned = {"nowhere": False, "half": X[:, 0] > 0, "everywhere": True}[where]
    is_turned = is_turned & (np.arange(N_ROWS) >= CHANGE)
    y = np.where(is_turned, rng.random(N_ROWS) < 0.2, y) ^ (rng.random(N_ROWS) < 0.05)
    model = DynamicModelTreeClassifier()
    for start in range(0, N_ROWS, 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
    return model


@pytest.mark.parametrize(("where", "kind"), [("half", "local"), ("everywhere", "global")])
def test_drift_is_found_and_told_local_or_global(where, kind):
    """Of six streams one may be unclear, none may be told wrong."""
    told = []
    for seed in range(1, 7):
        model = learn(where, seed)
        rise = loss_rises(model)[0]
        rows = [sample.n_rows for sample in model._tree.history.samples]  # rarer in larger trees
        fourth = [n_rows for n_rows in rows if n_rows > CHANGE][3]
        assert rise.start <= CHANGE < rise.stop <= fourth
        assert rise.kind in str(rise)
        told.append(rise.kind)
        if rise.kind == "local":
            assert any("x0 >" in path for path in rise.paths)
    assert set(told) <= {kind, "unclear"}
    assert told.count(kind) >= 5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_is_no_drift(seed):
    assert loss_rises(learn("nowhere", seed)) == []


@functools.cache
def learn_numbers(where, factor=1.0, seed=1):
    """Lines on either side of a step; later another rule for no rows, one side, or all."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(8000, 3))
    y = np.where(X[:, 0] > 0, 5 + 2 * X[:, 1], -2 * X[:, 1]) + rng.normal(0, 0.3, len(X))
    is_turned = {"nowhere": False, "half": X[:, 0] > 0, "everywhere": True}[where]
    y = np.where(is_turned & (np.arange(len(X)) >= 5000), 3 * X[:, 2] - y, y)
    model = DynamicModelTreeRegressor(follow_target=False, max_bends=0, absent="missing")
    for row, number in zip(X.tolist(), (factor * y).tolist(), strict=True):
        model.learn_one({f"x{j}": value for j, value in enumerate(row)}, number)
    return model


@pytest.mark.parametrize("factor", [1.0, 1e-6])
@pytest.mark.parametrize(
    ("where", "kinds"),
    [("nowhere", []), ("half", ["local"]), ("everywhere", ["global"])],
)
def test_drift_of_numbers_is_found_whatever_their_unit(where, kinds, factor):
    model = learn_numbers(where, factor)
    rises = [rise for rise in loss_rises(model) if rise.stop >= 5000]
    assert [rise.kind for rise in rises][:1] == kinds
    for rise in rises[:1]:
        assert rise.start <= 5000 < rise.stop
    course = loss_course(model)
    assert np.nanmean(course.tree) < np.nanmean(course.root)


@pytest.mark.parametrize("seed", [2, 42])
def test_a_branch_whose_border_moves_is_the_same_branch(seed):
    """Its labels turn to coin flips, and in or soon after the rise its threshold moves."""
    rng = np.random.default_rng(seed)
    change = int(rng.integers(2000, 6000))
    X = rng.uniform(-1, 1, size=(9000, 3))
    chance = 1 / (1 + np.exp(-8 * np.where(X[:, 0] <= 0, X[:, 1], X[:, 2])))
    chance[(np.arange(9000) >= change) & (X[:, 0] > 0)] = 0.5
    model = DynamicModelTreeClassifier().partial_fit(X, rng.random(9000) < chance)
    assert any(event.kind == "shift" for event in model.events_)
    [rise] = loss_rises(model)
    assert change < rise.stop <= change + 1000
    assert (rise.kind, rise.n_risen, rise.n_branches) == ("local", 1, 2)
    assert [path[:4] for path in rise.paths] == ["x0 >"]


def test_nodes_of_a_level_divide_the_rows():
    by_sample = {}
    for seen in loss_by_node(learn("half")):
        by_sample.setdefault(seen.n_rows, []).append(seen)
    assert len(by_sample) == len(learn("half")._tree.history.samples)
    for nodes in by_sample.values():
        parents = {node.parent for node in nodes}
        leaves = sorted((node.start, node.stop) for node in nodes if node.node not in parents)
        assert leaves[0][0] == 0.0
        assert leaves[-1][1] == pytest.approx(1.0)
        for (_, stop), (start, _) in itertools.pairwise(leaves):
            assert stop == pytest.approx(start)
        rows = sum(node.rows for node in nodes if node.node not in parents)
        assert rows == pytest.approx(nodes[0].rows)


def test_the_tree_loses_less_than_one_model_and_more_after_the_drift():
    course = loss_course(learn("half"))
    before = (course.n_rows > 8000) & (course.n_rows <= CHANGE)
    after = course.n_rows > CHANGE + 1000
    assert np.nanmean(course.tree[before]) < 0.3
    assert np.nanmean(course.root[before]) > 0.6
    assert np.nanmean(course.tree[after]) > np.nanmean(course.tree[before]) + 0.1


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "make",
    [DynamicModelTreeClassifier, lambda: DynamicModelTreeClassifier.paper(gain_step=1.0)],
    ids=["default", "paper"],
)
def test_losses_are_those_of_predicting_each_row_before_it_is_learnt(make, seed):
    X = np.random.default_rng(seed).uniform(-1, 1, size=(12_000, 2))
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)
    model, by_hand = make(), np.full(len(X), math.log(2))
    for start in range(0, len(X), 50):
        rows = slice(start, start + 50)
        if start:
            by_hand[rows] = -np.log(model.predict_proba(X[rows])[np.arange(50), y[rows]])
        model.partial_fit(X[rows], y[rows])
    assert all(
        seen.loss >= 0
        for sample in model._tree.history.samples
        for seen in sample.nodes.values()
        if seen.loss_rows
    )
    course = loss_course(model)
    changed = {event.n_rows for event in model.events_}
    assert len(changed) > 3
    compared = []
    for (start, stop), loss in zip(
        itertools.pairwise([0, *course.n_rows]), course.tree, strict=True
    ):
        if not any(start < row <= stop for row in changed):  # else it is that of the rows since
            assert loss == pytest.approx(by_hand[start:stop].mean(), abs=0.1)
            compared.append(loss)
    assert len(compared) > 8
    weights = np.diff([0, *course.n_rows])
    known = ~np.isnan(course.tree)
    mean = np.average(course.tree[known], weights=weights[known])
    assert mean == pytest.approx(by_hand[: course.n_rows[-1]].mean(), abs=0.1)


def test_a_loss_counts_with_the_rows_it_is_a_mean_of():
    """Not with all rows learnt in between: some came before the node was what it is."""
    model = learn("half")
    samples = {sample.n_rows: sample.nodes for sample in model._tree.history.samples}
    by_sample = {}
    for seen in loss_by_node(model):
        by_sample.setdefault(seen.n_rows, []).append(seen)
    for n_rows, nodes in by_sample.items():
        parents = {node.parent for node in nodes}
        leaves = [samples[n_rows][n.node] for n in nodes if n.node not in parents]
        rows = sum(leaf.loss_rows for leaf in leaves)
        total = sum(leaf.loss * leaf.loss_rows for leaf in leaves if leaf.loss_rows)
        assert nodes[0].rows == pytest.approx(rows)
        assert (
            math.isnan(nodes[0].loss) if rows == 0 else nodes[0].loss == pytest.approx(total / rows)
        )


@pytest.mark.parametrize(
    ("rise", "sentence"),
    [
        (
            LossRise(10, 20, 1.0, 1.0, 3, 3, ("a", "b", "c")),
            "Between rows 10 and 20 the loss rose in all 3 branches: global.",
        ),
        (
            LossRise(10, 20, 1.0, 1.0, 2, 2, ("a", "b")),
            "Between rows 10 and 20 the loss rose in both branches: global.",
        ),
        (
            LossRise(10, 2000, 0.85, 1.0, 3, 2, ("a", "b")),
            "Between rows 10 and 2,000 the loss rose in 2 of 3 branches, 85% of rows: global.",
        ),
        (
            LossRise(10, 20, 0.2, 0.5, 3, 1, ("age > 40",)),
            "Between rows 10 and 20 the loss rose in 1 of 3 branches, 20% of rows (age > 40): "
            "local.",
        ),
        (
            LossRise(10, 20, 0.5, 0.5, 2, 2, ("age > 40 and size <= 2", "age > 40")),
            "Between rows 10 and 20 the loss rose in 2 of 2 branches, 50% of rows (age > 40 and "
            "size <= 2; age > 40): local.",
        ),
        (
            LossRise(10, 20, 0.2, 0.9, 3, 1, ("age > 40",)),
            "Between rows 10 and 20 the loss rose in 1 of 3 branches, 20% of rows, perhaps in "
            "more: local or global is unclear.",
        ),
        (
            LossRise(10, 20, 1.0, 1.0, 1, 1, ("",)),
            "Between rows 10 and 20 the loss rose for all rows; no branch was old enough to tell "
            "local from global.",
        ),
    ],
)
def test_sentences(rise, sentence):
    assert str(rise) == sentence
