"""Drifts: found where the rule changes, even if the loss hardly rises, and nowhere else."""

import numpy as np
import pytest

import driftree
import stored
from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.explain.changes import Listener
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.constants import WATCH
from driftree.learn.drifts import InputChange, changed_inputs, describe_drift
from driftree.learn.tree import Tree
from driftree.streams import drift, sea

N, AT = 60_000, 50_000


def mild_drift(seed):
    """SEA whose threshold moves from 8 to 7: the tree follows within a thousand rows."""
    return drift(sea(N, seed=seed), sea(N - AT, seed=seed + 1000, function=2), at=AT)


def learn(batches, model=None):
    model = model or DynamicModelTreeClassifier()
    for X, y in batches:
        model.partial_fit(X, y)
    return model


def uniform(n, seed=1, n_features=3):
    return np.random.default_rng(seed).uniform(-1, 1, size=(n, n_features))


def test_a_mild_drift_is_found_soon_in_most_seeds():
    alarms = [learn(mild_drift(seed)).drifts() for seed in range(1, 5)]
    found = [one for own in alarms for one in own if AT < one.n_rows <= AT + 10_000]
    assert sum(map(len, alarms)) == len(found) >= 3
    assert all(abs(one.since - AT) <= 2000 and one.excess > 0.02 for one in found)
    assert {one.path for one in found} == {()}
    assert {one.inputs for one in found} == {()}


def test_without_a_change_there_is_no_alarm():
    assert [learn(sea(N, seed=seed)).drifts() for seed in range(1, 5)] == [[]] * 4


def test_a_branch_is_named_and_its_share():
    X = uniform(40_000)
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    turned = (np.arange(40_000) >= 30_000) & (X[:, 0] > 0)
    y[turned] = X[turned, 2] > 0.8
    [alarm] = learn([(X, y)]).drifts()  # x1 decides whether the new rule differs from the old one
    assert [str(condition)[:4] for condition in alarm.path] in (["x0 >", "x1 <"], ["x1 <", "x0 >"])
    assert alarm.share == pytest.approx(0.25, abs=0.05)
    assert 29_000 <= alarm.since <= 31_000


def test_a_second_drift_is_found_too_and_since_leaves_out_the_first():
    X = uniform(70_000, n_features=2)
    rules = [X[:, 0] > 0, X[:, 1] > 0, X[:, 0] + X[:, 1] > 0]
    y = np.choose(np.arange(70_000) // 25_000, rules)
    model = learn([(X, y)])
    assert [alarm.n_rows // 25_000 for alarm in model.drifts()] == [1, 2]
    assert model.drifts(since=50_000) == model.drifts()[1:]


def test_numbers_drift_too():
    X = uniform(40_000)
    y = 3 * X[:, 0] + np.random.default_rng(2).normal(size=40_000)
    y[30_000:] += 0.5 * X[30_000:, 1]
    [alarm] = learn([(X, y)], DynamicModelTreeRegressor(follow_target=False)).drifts()
    assert 30_000 < alarm.n_rows <= 40_000
    assert learn([(X[:30_000], y[:30_000])], DynamicModelTreeRegressor()).drifts() == []


def test_alarms_are_those_of_a_model_that_was_never_saved(tmp_path):
    whole, parts = learn(mild_drift(1)), DynamicModelTreeClassifier()
    for i, (X, y) in enumerate(mild_drift(1)):
        parts.partial_fit(X, y)
        if i % 9 == 8:
            parts.save(tmp_path / "model.dmt")
            parts = driftree.load(tmp_path / "model.dmt")
    assert whole.drifts() == parts.drifts() != []
    assert stored.to_bytes(whole) == stored.to_bytes(parts)


def test_an_alarm_that_was_interrupted_is_told_once(monkeypatch):
    """Ctrl-C came after the alarm was written down, and before the watch began anew."""
    tell = Tree._tell_drift

    def write_down_only(tree):
        monkeypatch.setattr(Tree, "_tell_drift", tell)
        tree.history.add_drift(describe_drift(tree, WATCH))

    monkeypatch.setattr(Tree, "_tell_drift", write_down_only)
    assert len(learn(mild_drift(1)).drifts()) == 1
    assert Tree._tell_drift is tell


def test_no_history_no_drifts():
    model = learn([next(sea(1000))], DynamicModelTreeClassifier(keep_history=False))
    with pytest.raises(ValueError, match="keep_history"):
        model.drifts()


# ---------------------------------------------------------------------- inputs
def test_inputs_that_changed_are_named():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier()
    cars = rng.choice(["van", "bus"], 300)
    columns = {"age": rng.normal(size=300), "car": cars, "same": rng.normal(size=300)}
    model.learn_many(columns, rng.integers(0, 2, 300))
    model.learn_many({**columns, "car": np.full(300, "tram")}, rng.integers(0, 2, 300))
    codes = model._tree.encoder.levels[1]
    before = np.column_stack([columns["age"], [codes[car] for car in cars], columns["same"]])
    after = before.copy()
    after[:, 0] += 1
    after[:60, 2] = np.nan
    after[:100, 1] = codes["tram"]
    found = {(one.feature, one.kind) for one in changed_inputs(model._tree, before, after)}
    assert found == {("age", "values"), ("car", "level"), ("same", "missing")}
    new = [one for one in changed_inputs(model._tree, before, after) if one.level == "tram"]
    assert [(one.before, one.after) for one in new] == [(0, pytest.approx(1 / 3))]
    assert list(changed_inputs(model._tree, before[::2], before[1::2])) == []


def test_medians_of_numbers_far_from_0_are_told_apart():
    told = str(InputChange("lon", "values", -122.4216, -122.3987))
    assert told == "lon has another distribution, with a median of -122.4 (-122.42)"
    told = str(InputChange("age", "values", 40.123, 51.234))
    assert told == "age has another distribution, with a median of 51.23 (40.12)"


def test_later_ones_of_many_levels_are_told_together():
    model, codes = DynamicModelTreeClassifier(), np.arange(400) % 40
    model.learn_many({"car": [f"car {code}" for code in codes]}, codes % 2)
    before = np.full((100, 1), 3.0)
    after = before.copy()
    after[:60] = MAX_LEVELS  # the code that they share
    told = [str(change) for change in changed_inputs(model._tree, before, after)]
    assert told == [
        "car == 'car 3' in 40% of rows instead of 100%",
        "car == 'any other level' in 60% of rows instead of 0%",
    ]


# ---------------------------------------------------------------------- listening
def test_a_listener_hears_all_once():
    heard, model = [], DynamicModelTreeClassifier()
    listener = Listener(heard.append, heard.append)
    for X, y in mild_drift(1):
        listener.look(model.partial_fit(X, y))
    listener.look(model)
    key = lambda one: one.n_rows  # noqa: E731
    assert sorted(heard, key=key) == sorted([*model.events_, *model.drifts()], key=key)
