"""Events: sentences in the user's words, figures that add up, and a log that can be replayed."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from driftree import DynamicModelTreeClassifier
from driftree.explain import loss_by_node
from driftree.learn.events import (
    Condition,
    LinkChange,
    MemoryChange,
    ModelChange,
    Prune,
    Replace,
    RunnerUp,
    Shift,
    Split,
    Spot,
    join_path,
    make_path,
)
from quick import SETTINGS, examples, make_stream, moods, of_setting, streams

pytestmark = pytest.mark.usefixtures("quick_pace")

FIGURES = {
    "step": 7,
    "n_rows": 12_345,
    "node": 4,
    "path": (Condition("age", "<=", 40.5), Condition("car", "!=", "van")),
    "gain": 54.0,
    "threshold": 32.25,
    "loss_before": 1654.0,
    "loss_after": 1600.0,
    "rows": 2345.0,
}
OLD = Condition("income", "<=", 51_000.0)
NEW = Condition("car", "==", "bus")
MOVED = Condition("income", "<=", 48_000.0)
GONE = {"removed": tuple(Spot(node) for node in range(1, 7))}
SECOND = RunnerUp(Condition("town", "is missing", None), 31.0)


# ---------------------------------------------------------------------- sentences
@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            Split(**FIGURES, condition=NEW, runner_up=SECOND),
            ["are split by car == 'bus'", "town is missing, with 31.0"],
        ),
        (
            Replace(**FIGURES, condition=NEW, old_condition=OLD, **GONE),
            ["are split by car == 'bus', no longer by income <= 51,000", "6 nodes"],
        ),
        (
            Replace(**FIGURES, condition=OLD, old_condition=OLD, **GONE),
            ["are split by income <= 51,000 once more, and both sides start anew", "6 nodes"],
        ),
        (
            Shift(**FIGURES, condition=MOVED, old_condition=OLD),
            [
                "are split by income <= 48,000, no longer by income <= 51,000; both sides keep",
                "2,345 rows between the two, the model of their new side erred less than that of",
                "a loss of 1,600.0 instead of 1,654.0",
            ],
        ),
        (
            Prune(**FIGURES, old_condition=OLD, **GONE),
            ["no longer split by income <= 51,000", "6 nodes"],
        ),
        (LinkChange(**FIGURES, floor=(0.06, 0.11), **GONE), ["17%", "random", "6 nodes"]),
        (LinkChange(**FIGURES, floor=(0.0, 0.0), **GONE), ["no longer", "random", "6 nodes"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_sentence_says_what_where_and_why(event, words):
    sentence = str(event)
    assert sentence.startswith("Row 12,345, step 7: ")
    assert sentence.endswith(".")
    for word in words:
        assert word in sentence
    if not isinstance(event, LinkChange):  # the whole tree has no path
        assert "age <= 40.5 and car != 'van'" in sentence
    for figure in ("2,345 rows", "1,654.0", "1,600.0", "54.0", "32.2"):
        assert figure in sentence


@pytest.mark.parametrize(
    ("condition", "text", "opposite"),
    [
        (Condition("age", "<=", 40.0), "age <= 40", "age > 40"),
        (Condition("size", "<=", 1.23456e-7), "size <= 1.235e-07", "size > 1.235e-07"),
        (Condition("debt", "<=", -1_234_567.8), "debt <= -1,234,568", "debt > -1,234,568"),
        (Condition("car", "==", "van"), "car == 'van'", "car != 'van'"),
        (Condition("flag", "==", True), "flag == True", "flag != True"),
        (Condition("car", "is missing", None, True), "car is missing", "car is present"),
    ],
    ids=str,
)
def test_conditions_read_well_both_ways(condition, text, opposite):
    assert str(condition) == text
    assert str(condition.negated()).removesuffix(" or missing") == opposite
    assert condition.negated().negated() == condition
    passing = dataclasses.replace(condition, missing_passes=True)
    assert str(passing).startswith(text)
    assert passing.negated().missing_passes is False
    assert str(passing.negated()) == opposite


def test_events_speak_of_the_users_features_and_units():
    """Scaled inside, but not in words: incomes in dollars, cars by their names."""
    rng = np.random.default_rng(1)
    n = 6000
    frame = pd.DataFrame(
        {
            "income": rng.uniform(20_000, 80_000, n),
            "age": rng.uniform(20, 80, n),
            "car": rng.choice(["van", "bus", "tram"], n),
        }
    )
    is_rich = frame["income"] / 1000 + frame["age"] > 100
    model = DynamicModelTreeClassifier()
    model.learn_many(frame, (is_rich ^ (frame["car"] == "bus")).tolist())
    first = model.events_[0]
    assert as_test(first.condition) == ("car", "==", "bus")
    assert "by car == 'bus'" in str(first)

    is_old = frame["age"] > 50
    model = DynamicModelTreeClassifier()
    model.learn_many(frame[["income", "age"]], (is_old ^ (frame["income"] > 50_000)).tolist())
    for event in model.events_:
        if isinstance(event, MemoryChange):
            places = []
        elif isinstance(event, ModelChange):
            places = [(curve.feature, knot) for curve in event.curves for knot in curve.knots]
        else:
            places = [(event.condition.feature, event.condition.value)]
        for name, value in places:
            assert frame[name].min() <= value <= frame[name].max()
            assert name in str(event)
    assert {event.kind for event in model.events_} >= {"bend", "split"}


# ---------------------------------------------------------------------- figures
def learn_with_events(setting, stream, mood, size=20):
    """Yield the learner and its new events after every step."""
    X, y = make_stream(**stream)
    categorical = (1,) if stream["categorical"] else ()
    parameters = of_setting(setting, **mood, categorical=categorical)
    model = DynamicModelTreeClassifier(**parameters)
    known = 0
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        model.partial_fit(X[rows], y[rows], classes=range(stream["n_classes"]))
        yield model, model.events_[known:]
        known = len(model.events_)


def numbers_in(record):
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield field.name, value
        elif isinstance(value, RunnerUp):
            yield from numbers_in(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], float):
            yield from ((field.name, share) for share in value)


@pytest.mark.parametrize("setting", SETTINGS)
@examples(20)
@given(stream=streams, mood=moods)
def test_figures_add_up(setting, stream, mood):
    for model, events in learn_with_events(setting, stream, mood):
        engine = model._tree.engine
        for event in events:
            assert all(math.isfinite(number) for _, number in numbers_in(event)), event
            assert event.gain >= event.threshold
            assert event.loss_before - event.loss_after == pytest.approx(event.gain, abs=1e-9)
            assert 0 < event.rows <= event.n_rows == engine.n_rows
            assert event.step == engine.n_steps
            if event.runner_up is not None and isinstance(event, (Split, Replace)):
                assert event.runner_up.gain <= event.gain
            assert str(event).startswith(f"Row {event.n_rows:,}, step {event.step:,}: ")


@pytest.mark.parametrize("setting", SETTINGS)
@examples(20)
@given(stream=streams, mood=moods)
def test_the_log_replays_to_the_tree(setting, stream, mood):
    """Every path leads to the node that changed, and all changes together make the tree."""
    root = []  # [] is a leaf, [test, left, right] an inner node
    for model, events in learn_with_events(setting, stream, mood):
        tree = model._tree
        for event in events:
            node = follow(root, event.path)
            if isinstance(event, ModelChange):
                assert event.n_removed == 0
                continue
            if isinstance(event, (Prune, Replace, Shift)):
                assert node[0] == as_test(event.old_condition)
            if isinstance(event, Shift):
                assert event.n_removed == 0
                node[0] = as_test(event.condition)
                continue
            if not isinstance(event, Split):
                assert event.n_removed == count(node) - 1
                node.clear()
            if isinstance(event, (Split, Replace)):
                assert node == []
                node[:] = [as_test(event.condition), [], []]
        if events and not isinstance(events[-1], LinkChange):
            assert tree.path(events[-1].node) == events[-1].path
        paths = [tuple(map(as_test, tree.path(leaf))) for leaf in tree.leaves()]
        assert sorted(leaf_paths(root), key=repr) == sorted(paths, key=repr)


def as_test(condition):
    """The test alone: whether missing values pass is not known before one has come."""
    return condition.feature, condition.operator, condition.value


def opposite_of(test):
    return as_test(Condition(*test).negated())


def follow(node, path):
    for condition in path:
        test, left, right = node
        assert as_test(condition) in (test, opposite_of(test))
        node = left if as_test(condition) == test else right
    return node


def count(node):
    return 1 + (count(node[1]) + count(node[2]) if node else 0)


def leaf_paths(node, path=()):
    if not node:
        return [path]
    test, left, right = node
    return leaf_paths(left, (*path, test)) + leaf_paths(right, (*path, opposite_of(test)))


@pytest.mark.parametrize("kind", [Replace, Shift])
def test_conditions_that_look_the_same_get_more_digits(kind):
    old, new = (Condition("pressure", "<=", value) for value in (1013.21, 1013.24))
    event = kind(**FIGURES, condition=new, old_condition=old)
    assert "split by pressure <= 1013.24, no longer by pressure <= 1013.21" in str(event)
    path = (Condition("pressure", ">", 1013.21), Condition("pressure", "<=", 1013.24))
    assert join_path(path) == "1013.21 < pressure <= 1013.24"


def test_numbers_have_the_digits_that_their_spread_asks_for():
    rng = np.random.default_rng(1)
    X = rng.normal([52.52, 13.405], 0.002, size=(4000, 2))
    model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 52.52) ^ (X[:, 1] > 13.405))
    texts = [join_path(model._tree.path(leaf)) for leaf in model._tree.leaves()]
    assert len(texts) > 1
    for text in texts:
        assert any(len(word.split(".")[1]) >= 4 for word in text.split() if "." in word)


def test_missing_values_are_said_only_where_they_can_come():
    """Once a condition has sent them the other way, a later one on the same feature has none."""
    path = [Condition("age", "<=", 60.0, False), Condition("age", "<=", 40.0, True)]
    assert join_path(make_path(path)) == "age <= 40"
    assert join_path(make_path(path[::-1])) == "age <= 40"
    assert [c.missing_passes for c in make_path([path[1], path[1]])] == [True, True]


@pytest.mark.parametrize(
    ("operator", "above", "below", "text"),
    [
        ("<=", 60.0, 40.0, "age <= 40"),
        ("<=", 30.0, 40.0, "age <= 30"),
        (">", 30.0, 40.0, "age > 40"),
        (">", 60.0, 40.0, "age > 60"),
    ],
)
def test_the_bound_that_counts_is_said_also_where_a_threshold_above_moved_past_it(
    operator, above, below, text
):
    path = [Condition("age", operator, value, True) for value in (above, below)]
    assert join_path(make_path(path)) == f"{text} or missing"
    rejected = dataclasses.replace(path[1], missing_passes=False)
    assert join_path(make_path([path[0], rejected])) == text


# ---------------------------------------------------------------------- the log
def test_events_cannot_be_changed_from_outside():
    X, y = make_stream(seed=1, n_features=2, n_classes=2)
    model = DynamicModelTreeClassifier(**of_setting("measured")).partial_fit(X, y)
    before = model.events_
    assert before
    model.events_.clear()
    assert model.events_ == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        before[0].gain = 0.0


def test_no_events_before_anything_was_learnt():
    assert not hasattr(DynamicModelTreeClassifier(), "events_")


def test_a_pruned_split_that_earned_too_little_says_so():
    figures = FIGURES | {
        "loss_before": 1600.0,
        "loss_after": 1605.0,
        "gain": -5.0,
        "threshold": -8.0,
    }
    sentence = str(Prune(**figures, old_condition=OLD))
    assert "saves 5.0, where more than 8.0 is required to stay" in sentence
    worse = figures | {"loss_after": 1590.0, "gain": 10.0}
    assert "did harm: a loss of 1,600.0 instead of 1,590.0" in str(
        Prune(**worse, old_condition=OLD)
    )


def test_a_third_label_ends_the_noise_floor_and_says_so():
    """The floor is for two labels; the plain challenger takes over, not weights of another link."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(12_000, 2))
    y = (X.sum(axis=1) > 0) ^ (rng.random(12_000) < 0.15)
    model = DynamicModelTreeClassifier().partial_fit(X, y.astype(int))
    assert isinstance(model.events_[-1], LinkChange)
    model._tree._sampler.take(model._tree.history)  # in the very step before
    step, before = model._tree.engine.n_steps, model.tree_at(model._tree.engine.n_steps)
    model.learn_one({"x0": 0.0, "x1": 0.0}, 2)
    event = model.events_[-1]
    assert event.third_label == 2
    assert "a third label, 2, has appeared" in str(event)
    assert (event.step, event.n_rows) == (step + 1, 12_001)
    assert math.isnan(event.gain)
    assert math.isnan(event.threshold)
    assert model.tree_at(step) == before
    assert str(event) in model.why(step=step + 1)
    assert loss_by_node(model)
    proba = model.predict_proba(X)[np.arange(12_000), y.astype(int)]
    assert -np.log(proba).mean() < 0.55
