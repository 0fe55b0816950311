"""Learning is one pipeline: read, commit, steps; nothing changes before everything was read."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import driftree
from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.learn import estimator
from driftree.learn.tree import Tree
from states import MODELS, state_hash

SOURCE = str(Path(driftree.__file__).parent)
N_ROWS = 37  # nothing else is so long


def carries_rows(thing, depth=0):
    """Whether an argument is a batch's rows, targets or weights, or holds them."""
    if isinstance(thing, (str, bytes)) or depth > 2:
        return False
    for name in ("matrix", "table"):
        if hasattr(thing, name) and carries_rows(getattr(thing, name), depth + 1):
            return True
    try:
        if len(thing) == N_ROWS:
            return True
        parts = thing if isinstance(thing, (list, tuple)) else ()
        return any(carries_rows(part, depth + 1) for part in parts)
    except TypeError:  # it has no length
        return False


class Hops:
    """Notes the modules of the library that rows enter: calls from outside that are handed them.

    It ends with `Tree.learn`, which hands the rows of the first step to the kernels.
    """

    def __init__(self):
        self.modules, self.is_over = [], False

    def __enter__(self):
        sys.setprofile(self.note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def note(self, frame, event, arg):
        name = frame.f_code.co_filename
        if event != "call" or self.is_over or not name.startswith(SOURCE):
            return
        caller = frame.f_back.f_code.co_filename
        n_arguments = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
        arguments = [frame.f_locals.get(a) for a in frame.f_code.co_varnames[:n_arguments]]
        if name != caller and any(map(carries_rows, arguments)):
            self.modules.append(Path(name).stem)
        self.is_over = frame.f_code is Tree.learn.__code__


def batch(part):
    rng = np.random.default_rng(part)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=N_ROWS),
            "b": rng.choice(["red", "green", f"level {part}"], N_ROWS),
            "c": np.where(rng.random(N_ROWS) < 0.1, np.nan, rng.normal(size=N_ROWS)),
            "d": rng.random(N_ROWS) < 0.5,
        }
    )
    w = np.array([0, 2, *[1] * (N_ROWS - 2)])  # as many rows in the end
    return X, rng.choice(["no", "yes", f"label {part}"], N_ROWS), w


@pytest.mark.parametrize("kind", [DynamicModelTreeClassifier, DynamicModelTreeRegressor])
@pytest.mark.parametrize("setting", ["measured", "paper"])
def test_a_frame_reaches_the_kernels_in_eight_hops_and_enters_each_module_once(kind, setting):
    model = kind(setting=setting)
    for part in range(3):  # the first batch; then new levels and labels; then nothing is new
        X, y, w = batch(min(part, 1))
        y = y if kind is DynamicModelTreeClassifier else np.arange(float(N_ROWS))
        with Hops() as hops:
            model.partial_fit(X, y, sample_weight=w)
        assert hops.is_over
        assert {"faces", "tables", "columns", "target", "weights", "tree"} <= {*hops.modules}
        assert len(hops.modules) <= 8, hops.modules
        assert len({*hops.modules}) == len(hops.modules), hops.modules
    with Hops() as hops:
        model.learn_many(X, y)
    assert len({*hops.modules}) == len(hops.modules) <= 8, hops.modules


@pytest.mark.parametrize("name", MODELS)
def test_whatever_fails_while_it_is_read_nothing_has_changed(name):
    """In each argument in turn; first rows leave nothing behind, either."""
    X, y, w = batch(0)
    wrong = [
        (X.assign(a="text"), y, w),
        (X.assign(a=np.inf), y, w),
        (X, [None] * N_ROWS, w),
        (X, y[:-1], w),
        (X, y, -1.0 * w),
    ]
    fresh, known = MODELS[name](), MODELS[name]().partial_fit(X, y, sample_weight=w)
    for model in (fresh, known):
        before = state_hash(model), dict(vars(model))
        for one in wrong[model is fresh :]:  # a first column of text is no error
            for learn in (model.partial_fit, model.fit, model.learn_many):
                if learn == model.fit and one is wrong[0]:
                    continue
                with pytest.raises((ValueError, TypeError)):
                    learn(
                        one[0],
                        one[1],
                        **{"w" if learn == model.learn_many else "sample_weight": one[2]},
                    )
                assert (state_hash(model), dict(vars(model))) == before


@pytest.mark.parametrize("name", MODELS)
def test_what_cannot_be_committed_is_not_remembered(name, monkeypatch):
    """What scikit-learn knows of features comes with the tree."""

    def fail(*_):
        raise MemoryError

    model, (X, y, _) = MODELS[name](), batch(0)
    with monkeypatch.context() as patch:
        patch.setattr(estimator, "register", fail)
        with pytest.raises(MemoryError):
            model.partial_fit(X, y)
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "classes_")


def test_steps_are_cut_once(monkeypatch):
    """A tree gets no more rows than it takes in a step; `fit` cuts in the paper's setting, too."""
    sizes, learn = [], Tree.learn

    def note(self, X, *others):
        sizes.append(len(X))
        learn(self, X, *others)

    monkeypatch.setattr(Tree, "learn", note)
    X = np.random.default_rng(1).normal(size=(450, 2))
    y = (X[:, 0] > 0).astype(int)
    for setting, whole in (("measured", [200, 200, 50]), ("paper", [450])):
        model = DynamicModelTreeClassifier(setting=setting)
        for call, expected in (
            (model.fit, [200, 200, 50]),
            (model.partial_fit, whole),
            (model.learn_many, whole),
        ):
            sizes.clear()
            call({"x0": X[:, 0], "x1": X[:, 1]} if call == model.learn_many else X, y)
            assert sizes == expected
