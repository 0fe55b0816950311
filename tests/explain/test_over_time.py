"""The course of candidates and of weights: the numbers that were compared, in their places."""

import math

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier
from driftree.explain.describe import leaf_models
from driftree.explain.over_time import _follow_sign, gain_race, weights_over_time
from readable_models import learn, many, numbers, paper_numbers


@pytest.fixture(scope="module")
def turning():
    """The sign of x1 depends on x2, that of x0 turns slowly, half-way after 12,000 rows."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(24_000, 3))
    turn = np.linspace(2, -2, len(X))
    y = turn * X[:, 0] + np.where(X[:, 2] > 0, 1, -1) * X[:, 1] > rng.normal(scale=0.3, size=len(X))
    model = DynamicModelTreeClassifier(max_bends=0)
    for start in range(0, len(X), 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
    return model


def test_the_race_holds_the_very_numbers_of_the_change(turning):
    split = next(event for event in turning.events_ if event.kind == "split")
    race = gain_race(turning, split.node)
    place = race.n_rows.tolist().index(split.n_rows)
    assert race.gains[split.condition][place] == split.gain
    assert race.threshold[place] == split.threshold
    assert race.gains[split.runner_up.condition][place] == split.runner_up.gain
    assert split in race.events
    assert np.all(np.diff(race.n_rows) > 0)


def test_before_it_wins_a_candidate_is_below_what_it_needs(turning):
    split = next(event for event in turning.events_ if event.kind == "split")
    race = gain_race(turning, split.node)
    earlier = race.n_rows < split.n_rows
    assert earlier.sum() >= 2
    for gains in race.gains.values():
        assert not np.any(gains[earlier] >= race.threshold[earlier])


def test_a_race_ends_where_the_node_was_made():
    model = many()
    births = {}
    for event in model.events_:
        births |= dict.fromkeys((event.left, event.right), event.n_rows)
    for node, born in list(births.items())[::6]:
        race = gain_race(model, node)
        assert np.all(race.n_rows >= born)
        assert race.path == model.tree_at(model._tree.engine.n_steps).path(node)
    assert gain_race(model).node == model.events_[-1].node


def test_effects_are_those_of_the_leaf_that_held_the_rows(turning):
    leaf = turning.leaf_models()[0].leaf
    course = weights_over_time(turning, leaf)
    assert course.label == turning.classes_[1]
    samples = turning._tree.history.samples
    for place, node in enumerate(course.nodes.tolist()):
        values = {name: effects[place] for name, effects in course.effects.items()}
        if node < 0:
            assert all(map(math.isnan, values.values()))
        else:
            seen = samples[place].nodes[node]
            assert seen.is_leaf
            assert values["x0"] == pytest.approx(float(seen.weights[0, 1]))
    assert course.nodes[0] == 0  # before all splits
    assert course.nodes[-1] == leaf


def test_a_flip_is_where_the_sign_has_turned(turning):
    leaves = [leaf.leaf for leaf in turning.leaf_models()]
    assert len(leaves) > 1
    for leaf in leaves:
        course = weights_over_time(turning, leaf)
        [place] = course.flips["x0"]
        assert 12_000 < course.n_rows[place] <= 15_000
        assert np.nanmean(course.effects["x0"][:place]) > 0 > course.effects["x0"][place]
        signs = course.signs["x0"]
        assert set(signs[:place]) <= {0, 1}
        assert set(signs[place:]) <= {0, -1}
        assert signs[place] == -1
        assert np.all(signs * course.effects["x0"] >= 0, where=signs != 0)


def test_a_sign_lasts_from_where_it_is_clear_to_where_it_ends():
    values = np.array([0.5, 2.0, 0.5, -0.5, 0.5, math.nan, 0.5, -2.0, -0.1, 0.0, -0.1, 3.0])
    flips, signs = _follow_sign(values, 1.0)
    assert flips == [7, 11]
    assert signs.tolist() == [0, 1, 1, 0, 0, 0, 0, -1, -1, 0, 0, 1]


def test_noise_around_zero_does_not_flip(turning):
    course = weights_over_time(turning)
    largest = max(np.nanmax(np.abs(effects)) for effects in course.effects.values())
    for name, places in course.flips.items():
        assert all(abs(course.effects[name][place]) > 0.1 * largest for place in places)


def test_with_many_labels_one_is_chosen():
    model = many()
    leaf = model.leaf_models()[3].leaf
    course = weights_over_time(model, leaf)
    shares = model._tree.engine.class_rows(leaf)
    assert course.label == list(model._tree.target.labels)[int(shares.argmax())]
    other = weights_over_time(model, leaf, label='"></b> label\\l 7')
    assert other.label != course.label or course.label == '"></b> label\\l 7'


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: gain_race(model, 99), "no node 99 in the tree; there are 0"),
        (lambda model: weights_over_time(model, 0), "node 0 is not a leaf; the leaves are"),
        (lambda _: gain_race(many(), 999), f"there are {', '.join(map(str, range(99)))}$"),
        (lambda model: weights_over_time(model, label="?"), "label must be one of True, got '?'"),
    ],
)
def test_errors_say_what_there_is(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(learn())


def test_without_a_history_there_is_no_course():
    model = DynamicModelTreeClassifier(keep_history=False)
    model.learn_one({"x": 1.0}, "yes")
    for ask in (gain_race, weights_over_time):
        with pytest.raises(ValueError, match="create it with keep_history=True"):
            ask(model)


@pytest.mark.parametrize("make", [numbers, paper_numbers])
def test_the_weights_of_a_number_are_in_its_unit(make):
    model = make()
    [leaf] = [leaf for leaf in leaf_models(model) if leaf.leaf == weights_over_time(model).leaf]
    course = weights_over_time(model)
    assert course.label == "y"
    last = {name: values[-1] for name, values in course.effects.items()}
    strongest = next(iter(leaf.effects["y"]))
    assert last[strongest] == pytest.approx(leaf.effects["y"][strongest], rel=0.5)
    assert any(gain_race(model, node=leaf.leaf).gains for leaf in leaf_models(model))
    with pytest.raises(ValueError, match="a number has no labels"):
        weights_over_time(model, label="y")
