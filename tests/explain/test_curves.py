"""Lines that are bent: what is read off a model with curves is exact, in whatever form."""

import functools
import math
import re

import numpy as np
import pandas as pd
import pytest

import driftree
from driftree import DynamicModelTreeClassifier, export_text
from driftree.explain import Bend, Curve, Unbend, outline, weights_over_time
from driftree.explain.describe import CurveRun, LeafCurve
from driftree.explain.markup import tree_html
from driftree.learn.storage import ModelFileError, histories
from driftree.learn.units import node_effects


def make_rows(n_rows, seed=1):
    """Far from 0.2 x0 means yes, but no where x1 is large; some x0 are missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform([-1, 1000], [1, 9000], (n_rows, 2)), columns=["x0", "x1"])
    frame["car"] = np.array(["van", "bus", "tram"], object)[rng.integers(0, 3, n_rows)]
    logit = 20 * (np.abs(frame["x0"] - 0.2) - 0.5) * np.where(frame["x1"] > 7000, -1, 1)
    logit += 2.0 * (frame["car"] == "van") + rng.logistic(size=n_rows)
    frame.loc[rng.random(n_rows) < 0.1, "x0"] = np.nan
    return frame, logit.to_numpy()


@functools.cache
def learn(n_labels=2, max_depth=9):
    """A model with curves; not to be taught further."""
    frame, logit = make_rows(6000)
    y = np.digitize(logit, {2: [0.0], 3: [-2.0, 3.0]}[n_labels])
    model = DynamicModelTreeClassifier(max_depth=max_depth)
    model.partial_fit(frame, y)
    assert "bend" in {event.kind for event in model.events_}
    assert any(own for leaf in model.leaf_models() for own in leaf.curves.values())
    return model


def far_rows():
    frame, _ = make_rows(300, seed=2)
    frame.loc[:20, "x0"] = 50.0
    frame.loc[20:40, "x0"] = -1e4
    frame.loc[40:60, "x1"] = np.nan
    return frame


SHAPES = [(2, 0), (2, 9), (3, 0), (3, 9)]


# ---------------------------------------------------------------------- exact
@pytest.mark.parametrize(("n_labels", "max_depth"), SHAPES)
def test_contributions_sum_to_the_log_odds(n_labels, max_depth):
    model, frame = learn(n_labels, max_depth), far_rows()
    why = model.explain(frame)
    sums = why.base_values + why.values.sum(axis=1)
    np.testing.assert_allclose(sums, model.decision_function(frame), rtol=0, atol=1e-9)
    assert np.all(np.isfinite(why.deviations))


@pytest.mark.parametrize(("n_labels", "max_depth"), SHAPES)
def test_a_contribution_is_the_height_of_the_curve(n_labels, max_depth):
    """The average row is where the curve is 0, and what is missing adds two parts."""
    model, frame = learn(n_labels, max_depth), far_rows()
    leaves = {leaf.leaf: leaf for leaf in model.leaf_models()}
    found = 0
    for why in model.explain(frame):
        leaf = leaves[why.leaf]
        for label, curves in leaf.curves.items():
            own = why.contributions if n_labels == 2 else why.contributions[label]
            for name, curve in curves.items():
                missing = leaf.weights[label].get(f"{name} is missing", 0.0)
                extra = missing if why.row[name] is None else 0.0
                assert own[name] == pytest.approx(curve(why.row[name]) + extra, abs=1e-9)
                found += 1
    assert found >= len(frame)


@pytest.mark.parametrize(("n_labels", "max_depth"), SHAPES)
def test_intercept_weights_and_curves_sum_to_the_log_odds(n_labels, max_depth):
    model, (frame, _) = learn(n_labels, max_depth), make_rows(200, seed=3)
    leaves = {leaf.leaf: leaf for leaf in model.leaf_models()}
    logits = model.decision_function(frame).reshape(len(frame), -1)
    for row, leaf, logit in zip(frame.to_dict("records"), model.apply(frame), logits, strict=True):
        own = leaves[leaf]
        for k, label in enumerate(own.weights):
            total = own.intercept[label]
            for name, weight in own.weights[label].items():
                feature, _, level = name.partition(" == ")
                if level:
                    total += weight * (repr(row[feature]) == level)
                elif name.endswith(" is missing"):
                    total += weight * math.isnan(row[name.removesuffix(" is missing")])
                else:
                    assert not math.isnan(row[name])
                    total += weight * row[name]
            total += sum(curve(row[name]) for name, curve in own.curves[label].items())
            assert total == pytest.approx(logit[k], abs=1e-8)


def test_a_bent_number_has_a_curve_and_no_weight():
    for leaf in learn().leaf_models():
        [label] = leaf.weights
        assert "x0" in leaf.curves[label]
        assert not set(leaf.curves[label]) & set(leaf.weights[label])
        assert set(leaf.effects[label]) == {*leaf.curves[label], *leaf.weights[label]}


def test_knots_and_slopes_are_in_the_users_units():
    [leaf] = learn(2, 0).leaf_models()
    [label] = leaf.curves
    curve = leaf.curves[label]["x0"]
    bend = next(event for event in learn(2, 0).events_ if isinstance(event, Bend))
    [knots] = [own.knots for own in bend.curves if own.feature == "x0"]
    assert set(knots) <= set(curve.knots)
    assert (curve.first, curve.last) == (knots[0], knots[-1])
    steps, rises = np.diff(curve.knots), np.diff(curve.values)
    assert curve.slopes == pytest.approx((rises / steps).tolist())
    assert sum(run.change for run in curve.runs) == pytest.approx(
        curve(curve.last) - curve(curve.first)
    )


# ---------------------------------------------------------------------- how strong
@pytest.mark.parametrize(("n_labels", "max_depth"), SHAPES)
def test_an_effect_is_the_largest_move_by_two_standard_deviations(n_labels, max_depth):
    model, (frame, _) = learn(n_labels, max_depth), make_rows(6000)
    for leaf in model.leaf_models():
        for label, curves in leaf.curves.items():
            for name, curve in curves.items():
                places = np.linspace(curve.first, curve.last, 401)
                heights = np.array([curve(place) for place in places])
                steps = places[None] - places[:, None]
                allowed = (steps >= 0) & (steps <= 2 * frame[name].std())
                moves = np.where(allowed, heights[None] - heights[:, None], 0.0)
                largest = moves.flat[np.abs(moves).argmax()]
                assert leaf.effects[label][name] == pytest.approx(largest, rel=0.02, abs=0.01)


def test_importance_counts_curves():
    importance = learn(2, 0).feature_importance()
    assert importance["x0"].weight > 2 * importance["x1"].weight
    [leaf] = learn(2, 0).leaf_models()
    [effects] = leaf.effects.values()
    missing = abs(effects.get("x0 is missing", 0.0))
    assert importance["x0"].weight == pytest.approx(max(abs(effects["x0"]), missing))


def test_samples_and_outlines_hold_the_effects_of_curves():
    model = learn(2, 0)
    [leaf] = model.leaf_models()
    [label] = leaf.effects
    assert outline(model)[0].effects[label] == pytest.approx(leaf.effects[label])
    assert outline(model)[0].curves == leaf.curves
    assert outline(model, step=20)[0].curves is None
    sample = model._tree.history.samples[-1].nodes[0]
    assert sample.weights.shape == (1, model._tree.engine.n_columns)
    course = weights_over_time(model)
    last = course.effects["x0"][-1]
    assert abs(last) == pytest.approx(abs(leaf.effects[label]["x0"]), rel=0.3)
    assert node_effects(model._tree.engine, 0).shape == sample.weights.shape


# ---------------------------------------------------------------------- in words
def test_runs_rise_or_fall():
    curve = LeafCurve((0.0, 1.0, 2.0, 3.0, 4.0), (5.0, 1.0, 2.0, 4.0, 4.0), 0.0, 3.5)
    assert curve.runs == [CurveRun(0.0, 1.0, -4.0), CurveRun(1.0, 3.5, 3.0)]
    assert str(curve) == "-4 from 0 to 1, +3 to 3.5"
    assert (curve(None), curve(math.nan), curve(-9), curve(9)) == (0.0, 0.0, 5.0, 4.0)
    assert curve.mean_slope == pytest.approx(-1 / 3.5)


@functools.cache
def learn_far(shift, width):
    """Labels by the distance from the middle of numbers that are far from 0."""
    numbers = shift + width * np.random.default_rng(1).uniform(-1, 1, 4000)
    model = DynamicModelTreeClassifier(max_depth=0)
    model.learn_many({"lon": numbers}, np.abs(numbers - shift) < width / 2)
    return model


@pytest.mark.parametrize(("shift", "width"), [(-122.42, 0.03), (1.7e9, 0.5)])
def test_knots_of_numbers_far_from_0_are_told_apart(shift, width):
    model = learn_far(shift, width)
    curve = model.leaf_models()[0].curves[True]["lon"]
    bend = next(event for event in model.events_ if isinstance(event, Bend))
    for text, n_knots in [
        (str(curve), len(curve.runs) + 1),
        (str(model.rules()[0]).partition("With lon, ")[2], len(curve.runs) + 1),
        (export_text(model).partition("curve(lon) =")[2], len(curve.knots)),
        (str(bend).partition(" bends")[2].partition(". Over")[0], len(bend.curves[0].knots)),
    ]:
        told = re.findall(r"(?:from|to|at|,|and|^) (-122[.\d]*|1,[\d,]{11}(?:[.]\d+)?)", text)
        assert len(set(told)) == n_knots, text


@pytest.mark.parametrize(("shift", "width"), [(-122.42, 0.03), (1.7e9, 0.5)])
def test_values_of_rows_far_from_0_are_told_apart(shift, width):
    model = learn_far(shift, width)
    told = [str(model.explain_one({"lon": shift + width * part})) for part in (0.1, 0.3, 0.5)]
    assert len({re.search(r"lon = (-?[\d.,]+)", text)[1] for text in told}) == 3, told


def test_a_leaf_tells_of_a_curve_only_where_it_has_rows():
    model = learn(2, 9)
    assert model.n_leaves_ > 1
    for leaf in model.leaf_models():
        [curves] = leaf.curves.values()
        for condition in leaf.path:
            if condition.operator == "<=" and condition.feature in curves:
                assert curves[condition.feature].last <= condition.value
            if condition.operator == ">" and condition.feature in curves:
                assert curves[condition.feature].first >= condition.value


@pytest.mark.parametrize("n_labels", [2, 3])
def test_rules_say_where_curves_rise_and_fall(n_labels):
    [rule] = learn(n_labels, 0).rules(max_weights=9)
    text = str(rule)
    if n_labels == 2:
        assert re.search(r"With x0, they rise by [\d.]+ from -0\.\d+ to \S+, then fall by", text)
    else:
        assert re.search(r"With x0, it rises by [\d.]+ from -0\.\d+ to \S+, then falls by", text)
    for weights in rule.weights.values():
        [own] = [weight for weight in weights if weight.name == "x0"]
        assert own.weight == own.curve.mean_slope
        assert str(own) == f"x0 ({own.curve})"


def test_formulas_give_the_values_at_the_knots():
    model = learn(2, 0)
    [leaf] = model.leaf_models()
    [label] = leaf.curves
    curve = leaf.curves[label]["x0"]
    text = " ".join(export_text(model, max_weights=9, digits=8).replace("|", " ").split())
    assert " + curve(x0)" in text
    [points] = re.findall(r"curve\(x0\) = ((?:\S+ at \S+ ?)+)", text)
    values = [float(value) for value in re.findall(r"(\S+) at", points)]
    assert values == pytest.approx(list(curve.values), rel=1e-6)


def test_pictures_of_the_tree_show_curves():
    model = learn(2, 0)
    [rule] = model.rules()
    [weights] = rule.weights.values()
    [curve] = [str(own.curve) for own in weights if own.name == "x0"]
    assert f"x0: {curve}" in model.to_dot()
    assert f"x0&nbsp;({curve})" in tree_html(model)


# ---------------------------------------------------------------------- changes and files
def test_the_log_of_changes_knows_bends():
    model = learn(2, 0)
    bend = next(event for event in model.events_ if isinstance(event, Bend))
    assert "x0" in [curve.feature for curve in bend.curves]
    frame = model.history()
    row = frame[frame["kind"] == "bend"].iloc[0]
    assert row["curves"] == "; ".join(map(str, bend.curves))
    assert "bend" in row["why"]
    assert row["n_removed"] == 0
    assert str(bend) in model.why(step=bend.step)
    diff = model.diff(0, model._tree.engine.n_steps)
    assert "1 bend" in str(diff)
    assert diff.added == diff.removed == []
    assert model.tree_at(bend.step).nodes == model.tree_at(0).nodes


def test_a_node_says_which_lines_bend_and_which_might():
    model = learn(2, 0)
    assert re.search(r"In its model the lines? of x0\b", model.why(node=0))
    X = np.random.default_rng(1).uniform(-1, 1, size=(600, 1))
    young = DynamicModelTreeClassifier()
    told = set()
    for start in range(0, 600, 50):
        rows = slice(start, start + 50)
        young.partial_fit(X[rows], np.abs(X[rows, 0]) > 0.5)
        told |= set(young.why(node=0).splitlines())
    assert any(re.match(r"A model in which the line of x0 bends at .* required\.", t) for t in told)
    assert any(re.match(r"In its model the line of x0 bends at ", line) for line in told)


@pytest.mark.parametrize(("n_labels", "max_depth"), SHAPES)
def test_a_file_keeps_the_log_and_all_that_can_be_read(tmp_path, n_labels, max_depth):
    model = learn(n_labels, max_depth)
    model.save(tmp_path / "model.dmt")
    loaded = driftree.load(tmp_path / "model.dmt")
    assert loaded.events_ == model.events_
    assert loaded._tree.history == model._tree.history
    assert loaded.to_dict() == model.to_dict()
    assert export_text(loaded) == export_text(model)


@pytest.mark.parametrize(
    ("curves", "words"),
    [
        ([], "must be those of some feature"),
        ([{"feature": "x0", "knots": [1.0]}], "must have ascending knots"),
        ([{"feature": "x0", "knots": [2.0, 1.0]}], "must have ascending knots"),
        ([{"feature": "x0", "knots": [1.0, "nan"]}], "event 0, curves"),
        ([{"feature": 7, "knots": [1.0, 2.0]}], "event 0, curves"),
        ([{"feature": "x0"}], "event 0, curves"),
        ("x0", "event 0, curves"),
    ],
)
def test_a_damaged_log_of_bends_is_refused(curves, words):
    contents, arrays = histories.pack(learn(2, 0)._tree.history)
    contents["events"][0]["curves"] = curves
    limits = histories.HistoryLimits(5, 3, 8, 2, 2**40, 2**40)
    with pytest.raises(ModelFileError, match=words):
        histories.unpack(contents, arrays, limits)


def test_changes_of_bends_are_told_in_words():
    figures = {"step": 3, "n_rows": 900, "node": 0, "path": (), "gain": 5.0, "threshold": 4.0}
    figures |= {"loss_before": 20.0, "loss_after": 15.0, "rows": 300.0}
    age, income = Curve("age", (20.0, 40.0, 60.0)), Curve("income", (1.5, 2.5))
    one, both = (age,), (age, income)
    assert (
        "for all rows the line of age bends at 20, 40 and 60. Over 300 rows a model with "
        in str(Bend(curves=one, **figures))
    )
    words = "the lines of age (20, 40, 60) and income (1.5, 2.5)"
    assert f"for all rows {words} bend. " in str(Bend(curves=both, **figures))
    again = str(Unbend(curves=one, **figures))
    assert "for all rows the line of age (20, 40, 60) is straight again. Over 300 rows a" in again
    assert f"for all rows {words} are straight again. " in str(Unbend(curves=both, **figures))
    worse = str(Unbend(curves=one, **figures | {"gain": -1.0, "threshold": -4.0}))
    assert "erred hardly more than the one with them" in worse
