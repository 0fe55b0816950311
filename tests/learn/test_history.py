"""The history: bounded, replayed to the tree that is there, and without effect on learning."""

import copy
import math
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from driftree import DynamicModelTreeClassifier
from driftree.learn import constants
from driftree.learn import history as history_module
from driftree.learn.events import Condition, ModelChange, Prune, Shift, Split
from driftree.learn.history import History, Structure
from driftree.learn.units import node_effects
from quick import SETTINGS, examples, make_stream, moods, of_setting, streams
from shifts import FIGURES, add_shift, learn_deep

pytestmark = pytest.mark.usefixtures("quick_pace")


def learn(setting="measured", *, seed=1, repeat=1, **parameters):
    """Learn streams, one after another, that make the quick tree change often."""
    model = DynamicModelTreeClassifier(**of_setting(setting, **parameters))
    for i in range(repeat):
        X, y = make_stream(seed=seed + i, n_features=3, n_classes=2)
        for start in range(0, len(X), 20):
            model.partial_fit(X[start : start + 20], y[start : start + 20], classes=[0, 1])
            yield model


def set_distance(monkeypatch, rows):
    """Sample every so many rows from the beginning."""
    monkeypatch.setattr(history_module, "LEAST_DISTANCE", rows)
    for name in ("MEASURED", "PAPER"):
        numbers = replace(getattr(constants, name), sample_rows=rows)
        monkeypatch.setattr(constants, name, numbers)


def as_tests(paths):
    """The tests alone: whether missing values pass is not known before one has come."""
    return [[(c.feature, c.operator, c.value) for c in path] for path in paths]


def shape_of(model):
    tree = model._tree
    return [(node, tree.engine.left[node], as_tests([tree.path(node)])) for node in tree.walk()]


def shape_in(structure):
    return [
        (spot.node, spot.left, as_tests([structure.path(spot.node)])) for spot in structure.walk()
    ]


@pytest.mark.parametrize("setting", SETTINGS)
@examples(15)
@given(stream=streams, mood=moods)
def test_the_tree_of_every_step_is_built_again(setting, stream, mood):
    X, y = make_stream(**stream)
    categorical = (1,) if stream["categorical"] else ()
    parameters = of_setting(setting, **mood, categorical=categorical)
    model = DynamicModelTreeClassifier(**parameters)
    shapes = {}
    for start in range(0, len(X), 20):
        rows = slice(start, start + 20)
        model.partial_fit(X[rows], y[rows], classes=range(stream["n_classes"]))
        shapes[model._tree.engine.n_steps] = shape_of(model)
    for step, shape in shapes.items():
        structure = model.tree_at(step)
        assert shape_in(structure) == shape
        assert list(structure.nodes) == [spot.node for spot in structure.walk()]
        for spot in structure.walk():
            assert spot.since_step <= step
            assert spot.depth == len(structure.path(spot.node))
    assert model._tree.history.now == model.tree_at(max(shapes))


def test_what_was_removed_is_what_stood_below():
    seen = 0
    for model in learn(repeat=3):
        new = model.events_[seen:]
        seen += len(new)
        if not new:
            continue
        tree = model.tree_at(new[0].step - 1)
        for event in new:
            stays = isinstance(event, (ModelChange, Shift))
            assert event.removed == (() if stays else tree.below(event.node))
            tree = tree.after(event)
        assert tree == model._tree.history.now
    assert any(event.removed for event in model.events_)


def test_old_changes_are_folded_into_the_tree_that_they_made(monkeypatch):
    """With room for three, the log still leads to the present tree, and says where it begins."""
    *_, whole = learn(repeat=8)
    monkeypatch.setattr(history_module, "MAX_EVENTS", 3)
    *_, short = learn(repeat=8)
    assert len(whole.events_) > 6
    assert short.events_ == whole.events_[-3:]
    folded = whole.events_[-4]
    log = short._tree.history
    assert (log.first_step, log.first_row) == (folded.step, folded.n_rows)
    last = whole._tree.engine.n_steps
    for step in range(log.first_step, last + 1):
        assert short.tree_at(step) == whole.tree_at(step)
    for step in (log.first_step - 1, last + 1):
        with pytest.raises(ValueError, match=f"from {log.first_step} .* to {last}, got {step}"):
            short.tree_at(step)


def make_log():
    """Two splits, of which the upper one moves twice, and a pruning of the lower one."""
    log = History(500)
    tests = [Condition("age", "<=", 37.0), Condition("age", "<=", 60.0, digits=5)]
    for i, (node, test) in enumerate(zip((0, 2), tests, strict=True)):
        where = {"step": i + 1, "n_rows": 10 * i + 10, "node": node, "path": log.now.path(node)}
        log.add(Split(**where, **FIGURES, condition=test, left=2 * i + 1, right=2 * i + 2))
    add_shift(log, 40.0, step=3, n_rows=30)
    add_shift(log, 42.5, step=4, n_rows=40)
    where = {"step": 5, "n_rows": 50, "node": 2, "path": log.now.path(2)}
    log.add(Prune(**where, **FIGURES, old_condition=tests[1], removed=log.below(2)))
    return log


def test_a_threshold_that_moves_changes_the_paths_below_and_nothing_else():
    log = make_log()
    for step, value in ((2, 37.0), (3, 40.0), (4, 42.5)):
        tree = log.at(step)
        assert [tuple(map(str, tree.path(node))) for node in tree.nodes] == [
            (),
            (f"age <= {value:g}",),
            (f"age > {value:g}",),
            (f"age > {value:g}", "age <= 60"),
            (f"age > {value:g}", "age > 60"),
        ]
        as_before = replace(tree.nodes[0], condition=log.at(2).nodes[0].condition)
        assert tree.nodes | {0: as_before} == log.at(2).nodes
        assert (tree.nodes[0].since_step, tree.nodes[0].since_row) == (1, 10)
    assert tree.after(log.events[-1]) == log.now == log.at(5)
    assert str(log.now) == (
        "|--- age <= 42.5\n|   |--- leaf 1, since row 10\n"
        "|--- age > 42.5\n|   |--- leaf 2, since row 50"
    )


@pytest.mark.parametrize("n_kept", range(6))
def test_moved_thresholds_are_folded_with_the_rest(n_kept, monkeypatch):
    whole = make_log()
    monkeypatch.setattr(history_module, "MAX_EVENTS", n_kept)
    short = make_log()
    assert list(short.events) == list(whole.events)[5 - n_kept :]
    assert short.first_step == 5 - n_kept
    for step in range(5 - n_kept, 6):
        assert short.at(step) == whole.at(step)
    assert short.now == whole.now


def test_losses_count_on_when_a_threshold_moves():
    tree = learn_deep()._tree
    split, log = tree.history.events[0], tree.history
    event = add_shift(log, 0.5, step=tree.engine.n_steps, n_rows=tree.engine.n_rows)
    assert tree._sampler.marks(event) == {}
    assert tree._sampler.marks(split).keys() == {split.node, split.left, split.right}


# ---------------------------------------------------------------------- samples
def test_samples_are_thinned_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(history_module, "MAX_SAMPLES", 8)
    set_distance(monkeypatch, 20)
    X, y = make_stream(seed=1, n_features=3, n_classes=2)
    model = DynamicModelTreeClassifier(max_depth=0)
    for _ in range(12):
        for start in range(0, len(X), 20):
            model.partial_fit(X[start : start + 20], y[start : start + 20], classes=[0, 1])
    samples = model._tree.history.samples
    rows = [sample.n_rows for sample in samples]
    assert 4 <= len(samples) <= 8
    assert len(set(np.diff(rows[1:]))) == 1
    assert rows[-1] > model.n_rows_seen_ * 3 / 4


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_NODES"])
def test_samples_are_bounded_by_their_size(limit, monkeypatch):
    set_distance(monkeypatch, 20)
    *_, free = learn()
    assert len(free._tree.history.samples) > 8
    size = {"MAX_BYTES": lambda s: s.n_bytes, "MAX_NODES": lambda s: len(s.nodes)}[limit]
    bound = sum(map(size, free._tree.history.samples)) // 3
    monkeypatch.setattr(history_module, limit, bound)
    *_, model = learn()
    assert 1 < len(model._tree.history.samples) < len(free._tree.history.samples)
    assert sum(map(size, model._tree.history.samples)) <= bound


@pytest.mark.parametrize("setting", SETTINGS)
def test_losses_of_new_nodes_count_their_own_rows_only(setting, monkeypatch):
    """In the paper's setting they inherit losses, which are not theirs."""
    set_distance(monkeypatch, 20)
    *_, model = learn(setting, repeat=3, gain_step=1.0)
    losses = [
        seen.loss
        for sample in model._tree.history.samples
        for seen in sample.nodes.values()
        if not math.isnan(seen.loss)
    ]
    assert model.events_
    assert min(losses) >= 0.0
    assert np.quantile(losses, 0.99) < 3.0


def test_thinning_keeps_the_mean_losses(monkeypatch):
    """Where a sample goes, the next one answers for its rows too."""
    set_distance(monkeypatch, 20)
    monkeypatch.setattr(history_module, "MAX_SAMPLES", 8)
    *_, few = learn(max_depth=0, evidence_window=1e12)
    monkeypatch.setattr(history_module, "MAX_SAMPLES", 256)
    *_, many = learn(max_depth=0, evidence_window=1e12)
    end = few._tree.history.samples[-1].n_rows
    means = []
    for model in (few, many):
        samples = [sample for sample in model._tree.history.samples if sample.n_rows <= end]
        gaps = np.diff([0, *(sample.n_rows for sample in samples)])
        means.append(np.average([sample.nodes[0].loss for sample in samples], weights=gaps))
    assert len(few._tree.history.samples) <= 8 < len(samples)
    assert means[0] == pytest.approx(means[1], rel=1e-9)


def test_weights_that_take_too_much_memory_are_left_out(monkeypatch):
    *_, model = learn()
    assert model._tree.history.samples[-1].nodes[0].weights is None or model.n_leaves_ == 1
    monkeypatch.setattr("driftree.learn.history.MAX_SAMPLE_BYTES", 1)
    model._tree._sampler.take(model._tree.history)
    assert all(node.weights is None for node in model._tree.history.samples[-1].nodes.values())
    assert model._tree.history.samples[-1].n_bytes == 0


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_sample_says_what_the_engine_says(setting, monkeypatch):
    set_distance(monkeypatch, 20)
    *_, model = learn(setting)
    model._tree._sampler.take(model._tree.history)
    engine, sample = model._tree.engine, model._tree.history.samples[-1]
    assert (sample.step, sample.n_rows) == (engine.n_steps, engine.n_rows)
    assert sorted(sample.nodes) == sorted(model._tree.walk())
    for node, seen in sample.nodes.items():
        assert seen.rows == engine.rows[node]
        assert seen.is_leaf == (engine.left[node] < 0)
        if seen.is_leaf:
            np.testing.assert_allclose(seen.weights, node_effects(engine, node), rtol=1e-6)
            bent = {j for j, _, _ in engine.bends(int(engine.model[node]))}
            lines = [c for c in range(engine.n_columns) if c not in engine.value_column[list(bent)]]
            weights = engine.weights(node)[:, lines]
            np.testing.assert_allclose(seen.weights[:, lines], weights, rtol=1e-6)
        gains = [entrant.gain for entrant in seen.entrants]
        assert gains == sorted(gains, reverse=True)


def test_the_loss_of_a_sample_is_the_mean_over_its_rows(monkeypatch):
    """Probabilities given before learning, averaged by hand between two samples."""
    set_distance(monkeypatch, 40)
    own = replace(constants.MEASURED, renew_rows=math.inf)  # the loss is that of a node's own model
    monkeypatch.setattr(constants, "MEASURED", own)
    X, y = make_stream(seed=1, n_features=3, n_classes=2)
    model = DynamicModelTreeClassifier(max_depth=0, evidence_window=1e12)
    paid = [math.log(2)]  # for the first row nothing is known
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        if i:
            paid.append(-math.log(model.predict_proba(row[None])[0, label]))
        model.partial_fit(row[None], [label], classes=[0, 1])
    samples = model._tree.history.samples
    assert len(samples) >= 4
    for before, now in pairwise(samples):  # a row is scaled after it was seen: not quite the same
        expected = np.mean(paid[before.n_rows : now.n_rows])
        assert now.nodes[0].loss == pytest.approx(expected, rel=1e-2)


# ---------------------------------------------------------------------- without effect
@pytest.mark.parametrize("setting", SETTINGS)
def test_history_changes_nothing_and_can_be_left_out(setting):
    *_, with_history = learn(setting, repeat=2)
    *_, without = learn(setting, repeat=2, keep_history=False)
    assert with_history.events_
    assert without.events_ == []
    ours, theirs = (model._tree.engine.arrays() for model in (with_history, without))
    assert {name for name in ours if name.startswith("watch_")} == ours.keys() - theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in theirs)
    for ask in (without.history, without.why, lambda: without.tree_at(1)):
        with pytest.raises(ValueError, match="keep_history=True"):
            ask()


def test_keep_history_is_a_truth_value():
    with pytest.raises(TypeError, match="keep_history must be True or False, got 'no'"):
        DynamicModelTreeClassifier(keep_history="no").partial_fit([[1.0]], [1])


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_goes_on_with_its_own_history(twin_of):
    stream = learn(repeat=3)
    for _ in range(20):
        model = next(stream)
    twin = twin_of(model)
    before = twin.events_, len(twin._tree.history.samples), twin._tree.history.now
    X, y = make_stream(seed=2, n_features=3, n_classes=2)
    model.partial_fit(X, y)
    assert (twin.events_, len(twin._tree.history.samples), twin._tree.history.now) == before
    twin.partial_fit(X, y)
    ours, theirs = model._tree.history, twin._tree.history
    assert (ours.events, ours.now, ours.marks) == (theirs.events, theirs.now, theirs.marks)
    assert [sample.n_rows for sample in ours.samples] == [s.n_rows for s in theirs.samples]
    assert ours.next_row == theirs.next_row == model._tree.engine.wake_at


def test_a_new_tree_is_one_leaf():
    assert str(Structure()) == "|--- leaf 0, since row 0"
    assert Structure().leaves() == [0]
