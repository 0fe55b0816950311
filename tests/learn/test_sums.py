"""A step is three moves: rows are summed, sums absorbed, models trained. Sums may be added."""

import numpy as np
import pytest

from driftree.learn import _kernels
from quick import SETTINGS, make_tree, of_setting, set_pace

pytestmark = pytest.mark.usefixtures("quick_pace")

SUMS = {"measured": _kernels.MeasuredSums, "paper": _kernels.PaperSums}


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)  # grids: single precision


def rows_of(seed, n_classes=2, n_rows=400):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)) + (n_classes - 2) * (X[:, 2] > 0)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y.astype(float), rng.integers(1, 5, n_rows) / 4


def make_grown(setting, n_classes=2):
    """A tree in mid-stream, and rows that come next."""
    tree = make_tree(n_classes, **of_setting(setting, max_nodes=9, epsilon=0.5, gain_step=2.0))
    engine = tree.engine
    for _ in range(3):
        engine.add_feature(False, True)
    for feature in range(3):
        engine.add_missing(feature)
    tree.finish()
    X, y, w = rows_of(3, n_classes)
    for start in range(0, len(X), 20):
        rows = slice(start, start + 20)
        tree.learn(X[rows], y[rows].astype(np.int32), w[rows])
    assert engine.n_nodes > 1 or n_classes > 2
    return tree, rows_of(4, n_classes)


def sums_of_nodes(engine):
    """All sums of the nodes, and what their candidates have; not what the models know."""
    return {
        name: array
        for name, array in engine.arrays().items()
        if name.startswith(
            ("node.rows", "sums.", "trial.", "bend_trial.", "grid.", "node_gradient")
        )
        or name in ("clock", "n_rows", "challenger_loss", "rival_loss", "challenger_rows")
    }


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_to_accumulate_changes_nothing(setting, n_classes):
    tree, (X, y, w) = make_grown(setting, n_classes)
    before = tree.engine.arrays()
    sums = tree.engine.accumulate(X, y, w)
    assert sums.n_rows == len(X)
    assert sums.weight == w.sum()
    after = tree.engine.arrays()
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.tobytes() == after[name].tobytes(), name


@pytest.mark.parametrize("setting", SETTINGS)
def test_sums_are_additive_over_rows(setting, monkeypatch):
    """Of two halves added, or of all rows at once, a tree absorbs the same.

    Nobody rests here: who does looks at rows by their number in the stream. Nor does a grid get
    more first rows than it keeps: which these are depends on the order.
    """
    set_pace(monkeypatch, restless_share=1e9, nodes_always_rest=False, side_variance=0)
    (one, (X, y, w)), (other, _) = make_grown(setting), make_grown(setting)
    X, y, w = X[:40], y[:40], w[:40]
    whole = one.engine.accumulate(X, y, w)
    first, second = (other.engine.accumulate(X[part], y[part], w[part]) for part in parts(40, 25))
    one.engine.absorb(whole)
    other.engine.absorb(first + second)
    ours, theirs = sums_of_nodes(one.engine), sums_of_nodes(other.engine)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        is_in_order = name != "grid.first_rows"  # of the parts
        near(*(each if is_in_order else np.sort(each) for each in (array, theirs[name])))
    assert one.engine.n_rows == other.engine.n_rows


def parts(n_rows, middle):
    return slice(0, middle), slice(middle, n_rows)


def test_a_step_is_its_sums_and_then_the_training():
    """What learning adds to the nodes is what their sums say; nothing else counts."""
    (one, (X, y, w)), (other, _) = make_grown("measured"), make_grown("measured")
    X = np.where(np.isnan(X), np.nan, X)[:20]
    other.engine.absorb(other.engine.accumulate(X, y[:20], w[:20]))
    one.engine.learn(X, y[:20], w[:20])
    ours, theirs = one.engine.arrays(), other.engine.arrays()
    assert not np.array_equal(ours["model.numbers"], theirs["model.numbers"])  # only one learnt
    for name in ("node.rows", "sums.class_rows", "sums.evidence", "clock", "trial.n_left"):
        near(ours[name], theirs[name])
    for name in ("sums.own_loss", "sums.subtree_loss", "trial.loss"):
        # the scale of the inputs has moved by these rows in one of them
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0.1, atol=0.5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_sums_are_archived(setting):
    (one, (X, y, w)), (other, _) = make_grown(setting), make_grown(setting)
    sums = one.engine.accumulate(X, y, w)
    again = SUMS[setting]()
    again.restore(sums.arrays())
    for name, array in sums.arrays().items():
        assert array.tobytes() == again.arrays()[name].tobytes(), name
    one.engine.absorb(sums)
    other.engine.absorb(again)
    for name, array in one.engine.arrays().items():
        assert array.tobytes() == other.engine.arrays()[name].tobytes(), name


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_copy_of_the_tree_may_sum_for_it(setting):
    tree, (X, y, w) = make_grown(setting)
    copy = make_tree(**of_setting(setting, max_nodes=9, epsilon=0.5, gain_step=2.0))
    copy.restore(tree.knowledge())
    tree.engine.absorb(copy.engine.accumulate(X, y, w))
    assert tree.engine.n_rows == copy.engine.n_rows + len(X)


@pytest.mark.parametrize("setting", SETTINGS)
def test_sums_are_for_the_tree_that_they_were_made_for(setting):
    tree, (X, y, w) = make_grown(setting)
    sums = tree.engine.accumulate(X, y, w)
    tree.engine.prune(0)
    with pytest.raises(ValueError, match="for another tree"):
        tree.engine.absorb(sums)
    with pytest.raises(ValueError, match="different trees"):
        sums + tree.engine.accumulate(X, y, w)


BROKEN = {
    "part.node": (10**6, "node that the tree has not"),
    "part.class_rows.lengths": (0, "parts of no item|wrong|node that"),
    "part.trial": (10**6, "trial that the tree has not"),
    "part.grid_slots": (10**6, "do not fit the node's grid"),
    "part.grid_n": (-1, "do not fit the node's grid"),
}


def absorb_arrays(engine, arrays):
    sums = _kernels.MeasuredSums()
    sums.restore(arrays)
    engine.absorb(sums)


@pytest.mark.parametrize("name", BROKEN)
def test_sums_that_do_not_fit_are_refused(name):
    tree, (X, y, w) = make_grown("measured")
    before = tree.engine.arrays()
    arrays = tree.engine.accumulate(X, y, w).arrays()
    value, words = BROKEN[name]
    arrays[name][:] = value
    with pytest.raises(ValueError, match=words):
        absorb_arrays(tree.engine, arrays)
    for key, array in before.items():
        assert array.tobytes() == tree.engine.arrays()[key].tobytes(), key


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_rows_add_nothing(setting):
    tree, (X, y, w) = make_grown(setting)
    nothing = tree.engine.accumulate(X[:0], y[:0], w[:0])
    assert nothing.n_rows == 0
    some = tree.engine.accumulate(X, y, w)
    both = nothing + some
    assert both.n_rows == some.n_rows
    again = SUMS[setting]()
    again.restore(nothing.arrays())
    assert again.n_rows == 0
