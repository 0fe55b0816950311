"""Prediction sets of the classifier: how often they hold the label, their form, files."""

import numpy as np
import pytest

import driftree
from driftree import DynamicModelTreeClassifier

MODELS = {"measured": DynamicModelTreeClassifier, "paper": DynamicModelTreeClassifier.paper}


def draw(n, n_labels, noise, seed=1):
    """Labels by the place along a line, with noise; from the middle on with three times as much."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, n_labels, size=(n, 2))
    noises = np.where(np.arange(n) < n // 2, noise, 3 * noise)
    y = np.clip(X[:, 0] + rng.normal(0, 1, size=n) * noises, 0, n_labels - 1e-9).astype(int)
    return X, np.array(["low", "middle", "high", "top"])[y]


def course(model, X, y, level, batch=10):
    """Whether each set held the label, and how large it was."""
    held, sizes = [], []
    for start in range(0, len(X), batch):
        rows = slice(start, start + batch)
        if start:
            found = model.predict_set(X[rows], level)
            places = np.searchsorted(model.classes_[order := np.argsort(model.classes_)], y[rows])
            held += found[np.arange(len(found)), order[places]].tolist()
            sizes += found.sum(axis=1).tolist()
        model.partial_fit(X[rows], y[rows], classes=np.unique(y))
    return np.array(held), np.array(sizes)


@pytest.mark.parametrize("setting", MODELS)
@pytest.mark.parametrize("n_labels", [2, 4])
@pytest.mark.parametrize("level", [0.8, 0.93])
def test_sets_hold_the_label_as_often_as_they_say(setting, n_labels, level):
    X, y = draw(4000, n_labels, 0.3)
    held, sizes = course(MODELS[setting](), X, y, level)
    assert (sizes >= 1).all()
    assert held.mean() > level - 0.015  # at first one label is right more often than that
    assert held[2200:].mean() == pytest.approx(level, abs=0.025)
    assert sizes[2200:].mean() > sizes[:1800].mean()  # more noise, more labels
    assert sizes.mean() < n_labels - 0.3


def test_rows_and_dicts_have_the_same_sets():
    X, y = draw(1000, 4, 0.3)
    model = DynamicModelTreeClassifier().fit(X, y)
    assert DynamicModelTreeClassifier().predict_set_one({"x0": 1.0}) == []
    for row, found in zip(X[:50], model.predict_set(X[:50]), strict=True):
        labels = model.predict_set_one({"x0": row[0], "x1": row[1]})
        assert set(labels) == set(model.classes_[found])
        assert labels[0] == model.predict(row[None])[0]


def test_a_higher_level_has_larger_sets():
    X, y = draw(2000, 4, 0.5)
    model = DynamicModelTreeClassifier().fit(X, y)
    sizes = [model.predict_set(X, level).sum() for level in (0.5, 0.75, 0.9, 0.97, 0.99)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    for level in (0.4, 1.0, None, [0.5, 0.9]):
        with pytest.raises(ValueError, match=r"level must be from 0\.5 to 0\.99"):
            DynamicModelTreeClassifier().predict_set_one({"x0": 0.0}, level)
        with pytest.raises(ValueError, match=r"level must be from 0\.5 to 0\.99"):
            model.predict_set(X, level)


@pytest.mark.parametrize("setting", MODELS)
def test_files_know_the_sets_and_old_files_begin_them(setting, tmp_path):
    X, y = draw(800, 2, 0.3)
    model = MODELS[setting]().fit(X, y)
    model.save(tmp_path / "model.dmt")
    loaded = driftree.load(tmp_path / "model.dmt")
    np.testing.assert_array_equal(loaded.predict_set(X), model.predict_set(X))
    arrays = model._tree.engine.arrays()
    assert len(arrays.pop("label_reach")) == 8  # as in a file of before there were sets
    engine = loaded._tree.engine
    engine.restore(arrays)
    np.testing.assert_array_equal(engine.reaches, np.ones(8))
    with pytest.raises(ValueError, match="label_reach"):
        engine.restore(arrays | {"label_reach": np.ones(3)})
