"""One model learns in slices: the same bits wherever the slices are learnt."""

import os
import signal

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.learn.storage import models
from driftree.scale import fit, merging
from driftree.streams import hyperplane, sea


def rows_of(n_rows, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)


def test_it_learns_nearly_as_well_as_in_one_process():
    (X, y), (X_test, y_test) = rows_of(6000), rows_of(2000, seed=2)
    model = fit(DynamicModelTreeClassifier(), (X, y))
    usual = DynamicModelTreeClassifier().partial_fit(X, y)
    assert model.n_rows_seen_ == usual.n_rows_seen_ == 6000
    assert model.n_leaves_ > 1
    assert model.score(X_test, y_test) > usual.score(X_test, y_test) - 0.03
    model.partial_fit(X_test, y_test)  # it goes on as any other


def line_of(n_rows):
    """Labels that depend on a line, and on chance: nothing to split."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, (X @ [1.0, 2.0, -1.0] + rng.normal(scale=0.3, size=n_rows) > 0).astype(int)


def test_one_slice_is_one_copy_that_learns_all():
    X, y = line_of(1000)
    model = fit(DynamicModelTreeClassifier(max_bends=0), (X, y), slices=1)
    usual = DynamicModelTreeClassifier(max_bends=0)
    usual.partial_fit(X[:500], y[:500]).partial_fit(X[500:], y[500:])
    np.testing.assert_allclose(model.predict_proba(X), usual.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("n_slices", [1, 2, 8])
def test_thresholds_outlast_a_round(n_slices):
    model = fit(DynamicModelTreeClassifier(), line_of(3000), slices=n_slices)
    assert not model.events_


@pytest.mark.parametrize("n_labels", [2, 7])
def test_eight_slices_know_what_one_process_knows(n_labels):
    rng = np.random.default_rng(1)
    X, weights = rng.uniform(-1, 1, size=(8000, 6)), 3 * rng.normal(size=(6, n_labels))
    y = (X @ weights + rng.gumbel(size=(8000, n_labels))).argmax(axis=1)
    usual = DynamicModelTreeClassifier().partial_fit(X[:6000], y[:6000])
    model = fit(DynamicModelTreeClassifier(), (X[:6000], y[:6000]), slices=8, round_rows=1000)
    lost, usually = (
        -np.log(one.predict_proba(X[6000:])[np.arange(2000), y[6000:]]).mean()
        for one in (model, usual)
    )
    assert lost < usually + 0.01


def test_eight_slices_follow_what_moves():
    blocks = hyperplane(10_000, seed=2, n_drifting=5, magnitude=0.001)
    usual, model = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    X, y = next(blocks)
    for one in (usual, model):
        one.partial_fit(X, y)
    right = []
    for X, y in blocks:
        right.append([one.score(X, y) for one in (usual, model)])
        usual.partial_fit(X, y)
        fit(model, (X, y), slices=8, round_rows=1000)
    usually, found = np.mean(right, axis=0)
    assert found > usually - 0.008


def test_what_is_new_in_a_step_is_learnt_with_it():
    rng = np.random.default_rng(1)
    columns = {
        "a": rng.normal(size=1500),
        "kind": np.repeat(["u", "v", "w"], 500).astype(object),
    }
    labels = np.where(columns["a"] > 0, "yes", "no").astype(object)
    labels[1002::5] = "maybe"
    model = fit(DynamicModelTreeClassifier(), (columns, labels))
    assert sorted(model.classes_) == ["maybe", "no", "yes"]
    assert model.predict_one({"a": 2.0, "kind": "u"}) == "yes"


def test_what_cannot_be_merged_is_refused():
    X, _ = rows_of(1000)
    with pytest.raises(TypeError, match="measured setting"):
        fit(DynamicModelTreeClassifier.paper(), sea(1000))
    with pytest.raises(TypeError, match="measured setting"):
        fit(DynamicModelTreeRegressor(), (X, X[:, 0]))
    with pytest.raises(ValueError, match="slices must be"):
        fit(DynamicModelTreeClassifier(), sea(1000), slices=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_any_number_of_workers_gives_the_same_bits_though_one_dies(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    X, y = rows_of(3000)
    expected = models.to_bytes(fit(DynamicModelTreeClassifier(), (X, y), slices=8))
    mark = tmp_path / "died"
    learn = merging.learn_slice

    def die_once(data, rows, n_slices):
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return learn(data, rows, n_slices)

    monkeypatch.setattr(merging, "learn_slice", die_once)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        for workers in (1, 2, 4, 8):
            model = fit(DynamicModelTreeClassifier(), (X, y), workers=workers, slices=8)
            assert models.to_bytes(model) == expected
    finally:
        ray.shutdown()
    assert mark.exists()
