"""A loss of the user's own: the same as a built-in one, in calls of all kinds; errors in it."""

import copy
import functools
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import get_tags

import driftree
from driftree import DynamicModelForestRegressor, DynamicModelTreeRegressor, Loss

MAKE = DynamicModelTreeRegressor
FOREST = functools.partial(DynamicModelForestRegressor, 3)


def half_square(y, p):
    return (p - y) ** 2 / 2


def difference(y, p):
    return p - y


def one(y, p):
    return 1.0


def deviance(y, p):
    log_y = np.log(y, out=np.zeros_like(y), where=y > 0)
    return np.exp(p) - y + np.where(y > 0, y * (log_y - p), 0.0)


def too_many(y, p):
    return np.exp(p) - y


def rate(y, p):
    return np.exp(p)


SQUARE = Loss("square", half_square, difference, one)
COUNT = Loss("count", deviance, too_many, rate, link="log")


def draw(n, seed=1):
    """Two lines with a border between them; a missing value and a category now and then."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    frame["car"] = rng.choice(["van", "bus"], size=n)
    y = np.where(frame.b > 0, 3 * frame.a, 4 - 3 * frame.a) + 2 * (frame.car == "van")
    y = (y + 0.1 * rng.normal(size=n)).to_numpy()
    frame.loc[rng.random(n) < 0.05, "b"] = None
    return frame, y


def counts(frame, seed=3):
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(0.5 * frame.a + (frame.car == "van"))).astype(float)


def course(model, frame, y, rows=1):
    """What is predicted of each row before it is learnt, and its interval."""
    found = []
    for x, number in zip(rows_of(frame), y, strict=True) if rows == 1 else ():
        found.append((model.predict_one(x), *model.predict_interval_one(x)))
        model.learn_one(x, number)
    for start in range(0, len(y), rows) if rows > 1 else ():
        part = frame.iloc[start : start + rows]
        if start:
            found += np.c_[model.predict(part), model.predict_interval(part)].tolist()
        model.partial_fit(part, y[start : start + rows])
    return np.array(found)


def rows_of(frame):
    return frame.to_dict("records")


# ---------------------------------------------------------------------- the same as a built-in one
@pytest.mark.parametrize("rows", [1, 20, 300])
@pytest.mark.parametrize(("own", "built_in"), [(SQUARE, "gaussian"), (COUNT, "poisson")])
def test_it_is_the_built_in_loss_to_rounding(own, built_in, rows):
    frame, y = draw(600)
    y = counts(frame) if own is COUNT else y
    models = MAKE(own), MAKE(built_in)
    found, expected = (course(model, frame, y, rows) for model in models)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert [str(event) for event in models[0].events_] == [str(e) for e in models[1].events_]
    row = rows_of(frame)[0]
    assert str(models[0].explain_one(row)) == str(models[1].explain_one(row))
    texts = [sorted(driftree.export_text(model).split()) for model in models]
    assert texts[0] == texts[1]  # weights of one size may be in any order
    goal = {"above": float(models[0].predict_one(row)) + 0.5}
    assert str(models[0].counterfactual(row, **goal)) == str(models[1].counterfactual(row, **goal))


def test_rows_and_dicts_are_learnt_alike():
    frame, y = draw(400)
    by_row, by_dict = MAKE(SQUARE, follow_target=False), MAKE(SQUARE, follow_target=False)
    for i, x in enumerate(rows_of(frame)):
        by_row.learn_many(frame.iloc[i : i + 1], [y[i]])
        by_dict.learn_one(x, y[i])
    np.testing.assert_allclose(by_row.predict_many(frame), by_dict.predict_many(frame), rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-9, 1e12])
def test_the_unit_of_the_target_does_not_matter(factor):
    """Also of a loss that grows less than with the square."""
    fair = Loss(
        "fair",
        lambda y, p: np.hypot(1, p - y) - 1,
        lambda y, p: (p - y) / np.hypot(1, p - y),
        lambda y, p: 1 / np.hypot(1, p - y),
    )
    scaled = Loss(
        "scaled fair",
        lambda y, p: fair.loss(y / factor, p / factor),
        lambda y, p: fair.slope(y / factor, p / factor) / factor,
        lambda y, p: fair.curvature(y / factor, p / factor) / factor**2,
    )
    frame, y = draw(300)
    expected = course(MAKE(fair), frame, y)
    found = course(MAKE(scaled), frame, y * factor) / factor
    np.testing.assert_allclose(found[5:], expected[5:], rtol=1e-6, atol=1e-6)


def test_intervals_hold_their_level():
    rng = np.random.default_rng(1)
    model, inside = MAKE(COUNT, follow_target=False), 0
    for i in range(1500):
        x = {"a": rng.uniform(0, 2)}
        y = float(rng.poisson(3 * np.exp(x["a"])))
        low, high = model.predict_interval_one(x, level=0.8)
        inside += i >= 500 and low <= y <= high
        model.learn_one(x, y)
    assert inside / 1000 == pytest.approx(0.8, abs=0.02)


# ---------------------------------------------------------------------- errors
def state_of(model, path):
    model.save(path)
    return path.read_bytes()


class Failing:
    """A slope that fails at its n-th call, counted from when it is armed."""

    def __init__(self):
        self.left = -1

    def __call__(self, y, p):
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("no slope today")
        return p - y


@pytest.mark.parametrize(
    ("make", "kind", "call"),
    [
        *((MAKE, "dict", call) for call in (1, 2)),
        *((MAKE, *case) for case in (("new feature", 1), ("batch", 1), ("batch", 60))),
        (MAKE, "steps", 900),
        *((FOREST, "dict", call) for call in (1, 2, 3, 4, 5)),
        *((FOREST, *case) for case in (("new feature", 1), ("batch", 1), ("batch", 130))),
        (FOREST, "steps", 2000),
    ],
)
def test_an_error_surfaces_and_leaves_the_model_as_it_was(make, kind, call, tmp_path):
    slope = Failing()
    frame, y = draw(450)
    model = make(loss=Loss("failing", half_square, slope, one))
    model.learn_many(frame[:50], y[:50])
    for x, number in zip(rows_of(frame[50:120]), y[50:120], strict=True):
        model.learn_one(x, number)
    before, spoilt = state_of(model, tmp_path / "a.dmt"), frame[120:]
    x = rows_of(spoilt)[0]
    learn = {
        "dict": lambda: model.learn_one(x, 3.0),
        "new feature": lambda: model.learn_one(x | {"new": "one"}, 3.0),
        "batch": lambda: model.learn_many(spoilt[:30], y[120:150]),
        "steps": lambda: model.learn_many(spoilt, y[120:]),
    }[kind]
    slope.left = call
    expected = driftree.load(tmp_path / "a.dmt").predict_many(frame)
    with pytest.raises(RuntimeError, match="no slope today"):
        learn()
    assert state_of(model, tmp_path / "b.dmt") == before
    np.testing.assert_array_equal(model.predict_many(frame), expected)
    learn()
    assert model.n_rows_seen_ > 120


@pytest.mark.parametrize(("make", "call"), [(MAKE, 900), (FOREST, 2000)])
def test_an_error_in_the_first_batch_after_single_rows_undoes_all_of_it(make, call, tmp_path):
    slope = Failing()
    frame, y = draw(450)
    model = make(loss=Loss("failing", half_square, slope, one))
    for x, number in zip(rows_of(frame[:50]), y[:50], strict=True):
        model.learn_one(x, number)
    before = state_of(model, tmp_path / "a.dmt")
    slope.left = call
    with pytest.raises(RuntimeError, match="no slope today"):
        model.partial_fit(frame[50:], y[50:])
    assert state_of(model, tmp_path / "b.dmt") == before
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("make", [MAKE, FOREST])
def test_an_error_in_the_first_rows_leaves_nothing(make):
    slope = Failing()
    model = make(loss=Loss("failing", half_square, slope, one))
    slope.left = 1
    with pytest.raises(RuntimeError):
        model.learn_one({"a": 1.0}, 2.0)
    assert model.predict_one({"a": 1.0}) == 0
    with pytest.raises(AttributeError):
        _ = model.n_rows_seen_


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"loss": lambda y, p: p * np.nan}, "loss is nan"),
        ({"loss": lambda y, p: -np.abs(p) - 1}, "loss is -.*not negative"),
        ({"slope": lambda y, p: p + np.inf}, "slope is inf"),
        ({"curvature": lambda y, p: 0 * p}, "curvature is 0.0 .*above 0"),
        ({"slope": lambda y, p: np.ones(len(y) + 1)}, "slope of loss 'odd' must return one number"),
        ({"slope": lambda y, p: "steep"}, "slope of loss 'odd' must return one number"),
    ],
)
def test_answers_are_checked(functions, message):
    parts = {"loss": half_square, "slope": difference, "curvature": one} | functions
    model = MAKE(Loss("odd", **parts))
    with pytest.raises(ValueError, match=message):
        model.fit(np.zeros((3, 1)), [1.0, 2.0, 3.0])


def test_functions_cannot_change_what_the_others_read():
    def change(y, p):
        p -= y
        return p**2 / 2

    model = MAKE(Loss("changing", change, difference, one))
    with pytest.raises(ValueError, match="read-only"):
        model.fit(np.zeros((3, 1)), [1.0, 2.0, 3.0])
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "gaussian"}, ValueError, "not one of 'gaussian'"),
        ({"name": 3}, ValueError, "must be text"),
        ({"slope": 3}, TypeError, "slope of loss 'odd' must be a function"),
        ({"link": "logit"}, ValueError, "link must be 'identity' or 'log', got 'logit'"),
    ],
)
def test_a_loss_that_is_none_is_refused(change, error, message):
    parts = {"name": "odd", "loss": half_square, "slope": difference, "curvature": one}
    with pytest.raises(error, match=message):
        Loss(**parts | change)


@pytest.mark.parametrize("make", [MAKE, FOREST])
def test_a_loss_may_look_at_the_model_but_not_teach_it(make):
    curious = Loss("curious", half_square, difference, lambda y, p: teach() or 1.0)
    model = make(loss=curious)

    def teach():
        if asked:
            model.learn_one({"a": 1.0}, 2.0)

    asked = []
    model.learn_one({"a": 1.0}, 2.0)
    asked.append(True)
    with pytest.raises(RuntimeError, match="must not teach the model that asks it"):
        model.learn_one({"a": 1.0}, 2.0)
    asked.clear()
    model.learn_one({"a": 1.0}, 2.0)
    assert model.n_rows_seen_ == 2


# ---------------------------------------------------------------------- kept, copied, shared
def test_files_hold_its_name(tmp_path):
    frame, y = draw(300)
    model = MAKE(SQUARE).fit(frame, y)
    path = tmp_path / "model.dmt"
    model.save(path)
    loaded = driftree.load(path)
    assert loaded.loss == "square"
    for one_model in (model, loaded):
        one_model.partial_fit(frame, y)
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    assert state_of(loaded, tmp_path / "a.dmt") == state_of(model, tmp_path / "b.dmt")


def test_a_file_whose_loss_is_not_known_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.dmt"
    MAKE(SQUARE).fit([[1.0], [2.0]], [1.0, 2.0]).save(path)
    monkeypatch.delitem(driftree.learn.losses._made, "square")
    with pytest.raises(driftree.ModelFileError, match=r"got 'square'; .*import its module first"):
        driftree.load(path)


def test_it_is_pickled_copied_and_cloned():
    frame, y = draw(300)
    model = MAKE(SQUARE).fit(frame, y)
    expected = model.predict(frame)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(twin.predict(frame), expected)
        assert twin.loss == SQUARE
    fresh = model.clone()
    assert fresh.loss == SQUARE
    np.testing.assert_array_equal(fresh.fit(frame, y).predict(frame), expected)


@pytest.mark.parametrize("loss", [SQUARE, COUNT, "square", "count"])
def test_scikit_learn_is_told_which_targets_it_takes(loss):
    is_count = loss in (COUNT, "count")
    assert get_tags(MAKE(loss)).target_tags.positive_only == is_count


def test_the_papers_setting_has_none():
    with pytest.raises(ValueError, match=r"one of 'gaussian', 'student' in the paper's setting"):
        MAKE.paper(loss=SQUARE).fit([[1.0], [2.0]], [1.0, 2.0])


def test_threads_predict_while_python_is_asked():
    frame, y = draw(600)
    model = MAKE(SQUARE).fit(frame[:100], y[:100])
    found, failed = [], []

    def look():
        try:
            while not done.is_set():
                found.append(model.predict(frame[:50]))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    done, watcher = threading.Event(), threading.Thread(target=look)
    watcher.start()
    model.partial_fit(frame[100:], y[100:])
    done.set()
    watcher.join(timeout=60)
    assert not failed
    assert found
    np.testing.assert_allclose(
        model.predict(frame),
        MAKE().fit(frame[:100], y[:100]).partial_fit(frame[100:], y[100:]).predict(frame),
        rtol=1e-9,
    )
