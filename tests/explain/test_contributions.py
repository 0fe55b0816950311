"""Why this prediction: contributions that add up, mean something, and can be said in words."""

import math
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.explain.contributions import explain, explain_one
from driftree.explain.text import percent

PAPER = {"setting": "paper"}
NAMES = ["age", "income", "car", "owner"]


def make_frame(n_rows=3000, seed=1):
    """Two numbers of different size, a category and a number that is only 0 and 1; some missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, n_rows),
            "income": rng.normal(3000, 800, n_rows),
            "car": rng.choice(["van", "bus", "none"], n_rows).astype(object),
            "owner": rng.integers(0, 2, n_rows).astype(float),
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "car"] = None
    return frame


def make_labels(frame, n_labels=2):
    """A rule that needs a split on age, in as many labels as asked for."""
    score = (frame["income"] - 3000) / 800 + frame["owner"] + 2.0 * (frame["car"] == "van")
    score = np.where(frame["age"] > 50, -score, score)
    edges = np.linspace(-1, 1, n_labels + 1)[1:-1]
    return np.array(["low", "high", "middle", "top"])[np.digitize(score, edges)]


def learn(n_labels=2, **parameters):
    frame = make_frame()
    return DynamicModelTreeClassifier(**parameters).partial_fit(frame, make_labels(frame, n_labels))


@pytest.fixture(scope="module")
def model():
    return learn()


@pytest.fixture(scope="module")
def noisy():
    """A fifth of the labels is flipped, and the model has found out."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(20_000, 2))
    y = (X.sum(axis=1) > 1) ^ (rng.random(len(X)) < 0.2)
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    assert any(any(facts.floor) for facts in model.explain(X[:100]).facts.values())
    return model


def total(why):
    """The log-odds that an explanation adds up to."""
    if isinstance(why.intercept, dict):
        return [why.intercept[k] + sum(why.contributions[k].values()) for k in why.intercept]
    return why.intercept + sum(why.contributions.values())


def log_odds(model, rows):
    return model.decision_function(pd.DataFrame(rows, columns=NAMES))


# ---------------------------------------------------------------------- they add up
@pytest.mark.parametrize("parameters", [{}, PAPER], ids=["measured", "paper"])
@pytest.mark.parametrize("n_labels", [1, 2, 3, 4])
def test_contributions_add_up_to_the_decision_function(n_labels, parameters):
    model = learn(n_labels, **parameters)
    frame = make_frame(300, seed=2)
    why = explain(model, frame)
    expected = model.decision_function(frame)
    np.testing.assert_allclose(
        why.base_values + why.values.sum(axis=1), expected, rtol=0, atol=1e-9
    )
    assert why.leaves.tolist() == model.apply(frame).tolist()
    assert len(why) == len(list(why)) == len(frame)
    for i in (0, 7, 11, -1):
        np.testing.assert_allclose(total(why[i]), expected[i], rtol=0, atol=1e-9)
        proba = model.predict_proba(frame)[i]
        assert list(why[i].probabilities.values()) == proba.tolist()
        assert why[i].prediction == model.predict(frame)[i]
        assert why[i].label == (model.classes_[1] if n_labels == 2 else None)
        assert (why[i].deviation is None) == (parameters == PAPER)
        assert (why[i].intervals is None) == (parameters == PAPER or n_labels != 2)


def make_target(frame):
    """A number that needs a split on age."""
    score = (frame["income"] - 3000) / 80 + 10 * frame["owner"] + 20.0 * (frame["car"] == "van")
    return (500 + np.where(frame["age"] > 50, -score, score)).astype(float)


def learn_numbers(factor=1.0, shift=0.0, **parameters):
    frame = make_frame()
    y = factor * make_target(frame) + shift
    if "setting" not in parameters:
        parameters["absent"] = "missing"
    model = DynamicModelTreeRegressor(**parameters)
    for row, number in zip(frame.to_dict("records"), y.tolist(), strict=True):
        model.learn_one(row, number)
    return model


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"follow_target": False},
        {"loss": "student"},
        {"loss": "quantile", "quantiles": [0.7]},
        {"loss": "quantile"},
        {"max_bends": 0},
        PAPER,
    ],
    ids=["measured", "own inputs only", "student", "one quantile", "quantiles", "lines", "paper"],
)
def test_contributions_add_up_to_the_number(parameters):
    model = learn_numbers(**parameters)
    frame = make_frame(300, seed=2)
    why, expected = explain(model, frame), model.predict(frame)
    np.testing.assert_allclose(why.base_values + why.values.sum(axis=1), expected, rtol=1e-12)
    np.testing.assert_array_equal(why.predictions, expected)
    assert why.leaves.tolist() == model.apply(frame).tolist()
    for i in (0, 7, 11, -1):
        one = why[i]
        assert (one.prediction, one.probabilities, one.label) == (expected[i], {}, None)
        assert total(one) == pytest.approx(expected[i], rel=1e-12)
        assert (one.deviation is None) == (one.intervals is None) == (parameters == PAPER)
        if one.intervals:
            low, high = one.intervals["y"]
            assert low < one.prediction < high
            assert high - low == pytest.approx(2 * 1.96 * one.deviation)
        assert one.error == pytest.approx(
            math.sqrt(model._tree.engine.spread(int(model._tree.engine.model[one.leaf])))
        )
    assert len(why[:5]) == len(why[:5].predictions) == 5


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_contributions_add_up_to_a_limited_count(is_sparse, unit):
    """The logarithm of a count is at most 8 from that of the mean count."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    y = unit * rng.poisson(np.exp(2.5 * X[:, 0] - 1))
    names = ["a", "b"]
    rows = [dict(zip(names, x, strict=True)) for x in X.tolist()]
    model = DynamicModelTreeRegressor("poisson", absent="zero" if is_sparse else None)
    model.learn_many(rows if is_sparse else pd.DataFrame(rows), y)
    ask = [{"a": 6.0, "b": 1.0}, {"a": -6.0, "b": -1.0}, {"a": 0.5, "b": 0.0}]
    told = [model.explain_one(x) for x in ask]
    logs = np.array([total(one) for one in told])
    predicted = np.array([model.predict_one(x) for x in ask])
    np.testing.assert_allclose(np.exp(logs), predicted)
    log_mean = math.log(model._tree.engine.target_scale)
    np.testing.assert_allclose(logs[:2] - log_mean, [8.0, -8.0])
    assert abs(logs[2] - log_mean) < 7
    assert max(told[0].contributions, key=told[0].contributions.get) == "a"
    assert not model.counterfactual(ask[2], above=3000 * math.exp(log_mean)).changes


def test_what_is_said_of_a_number_is_in_its_unit():
    factor, shift = 1e-3, 7e4
    plain, other = learn_numbers(), learn_numbers(factor, shift)
    frame = make_frame(50, seed=2)
    ours, theirs = explain(plain, frame), explain(other, frame)
    assert ours.leaves.tolist() == theirs.leaves.tolist()
    np.testing.assert_allclose(theirs.values, factor * ours.values, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(theirs.base_values, factor * ours.base_values + shift, rtol=1e-9)
    np.testing.assert_allclose(theirs.deviations, factor * ours.deviations, rtol=1e-4)
    assert theirs[0].error == pytest.approx(factor * ours[0].error, rel=1e-4)


def test_what_the_model_knows_itself_is_explained_like_other_features():
    model = learn_numbers()
    row = {"age": 30.0, "income": 3000.0, "car": "van", "owner": 1.0}
    why = explain_one(model, row)
    own = ["last y", "last 3 y", "last 20 y"]
    assert list(why.row)[:3] == own
    assert {*why.row} == {*own, *row}  # a feature whose first value is missing may come later
    assert why.row["last y"] == make_target(make_frame())[-1]
    assert why.unknown == ()
    assert "Not known" not in str(why)


def test_the_words_of_a_number():
    model = learn_numbers(follow_target=False)
    why = explain_one(model, {"age": 30.0, "income": 3000.0, "car": "van", "owner": 1.0})
    first, rule, heading, *ledger, sums, certainty = str(why).split("\n")
    assert first == f"Prediction: {why.prediction:.2f}, with an error of about {why.error:.2f}"
    assert rule.startswith("Rule: age <= ")
    assert heading == "What makes the number, compared with an average row:"
    assert [float(line.split()[0]) for line in ledger] == pytest.approx(
        [value for value in why.contributions.values() if value], abs=0.0051
    )
    assert sums == f"    An average row has {why.intercept:.2f}, this one {why.prediction:.2f}."
    low, high = why.intervals["y"]
    assert f"between {low:.2f} and {high:.2f} (95% interval)" in certainty
    with pytest.raises(ValueError, match="a number has no labels"):
        why.to_shap(label="high")
    paper = explain_one(learn_numbers(**PAPER), {"age": 30.0})
    assert "Certainty: not available" in str(paper)
    assert "the mean of such rows is between" in certainty


@pytest.mark.parametrize("quantiles", [[0.7], [0.1, 0.7, 0.9]])
def test_the_words_of_a_quantile(quantiles):
    why = explain_one(learn_numbers(loss="quantile", quantiles=quantiles), {"age": 30.0})
    assert why.quantile == 0.7
    assert "the 0.7 quantile of such rows is between" in str(why)


def test_numbers_go_to_shap():
    shap = pytest.importorskip("shap")
    why = explain(learn_numbers(), make_frame(20, seed=2))
    whole, one = why.to_shap(), why[3].to_shap()
    assert isinstance(one, shap.Explanation)
    np.testing.assert_allclose(whole.base_values + whole.values.sum(axis=1), why.predictions)
    assert one.base_values + one.values.sum() == pytest.approx(why.predictions[3])


def test_a_tree_gives_each_row_the_rule_and_model_of_its_leaf(model):
    assert model.n_leaves_ > 1
    frame = make_frame(300, seed=2)
    why = explain(model, frame)
    leaves = {leaf.leaf: leaf for leaf in model.leaf_models()}
    for one, leaf in zip(why, model.apply(frame), strict=True):
        assert (one.leaf, one.path, one.rows) == (leaf, leaves[leaf].path, leaves[leaf].rows)
        weights = leaves[leaf].weights[one.label]
        if one.row["car"] is not None:
            contribution = weights[f"car == {one.row['car']!r}"]
            assert one.contributions["car"] == pytest.approx(contribution, abs=1e-9)


def test_dicts_arrays_and_frames_get_the_same_numbers():
    X = np.random.default_rng(1).normal(size=(1000, 3))
    model = DynamicModelTreeClassifier()
    for *values, label in np.column_stack([X, X @ [1.0, -2.0, 0.1] > 0]).tolist():
        model.learn_one(dict(zip(("x0", "x1", "x2"), values, strict=True)), bool(label))
    rows = X[:20]
    columns = {f"x{j}": rows[:, j] for j in range(3)}
    arrays = explain(model, rows)
    for other in (columns, pl.DataFrame(columns), pd.DataFrame(columns)):
        np.testing.assert_array_equal(explain(model, other).values, arrays.values)
    for row, one in zip(rows.tolist(), arrays, strict=True):
        alone = explain_one(model, {f"x{j}": value for j, value in enumerate(row)})
        assert list(alone.row) == list(one.row) == ["x0", "x1", "x2"]
        assert alone.contributions == pytest.approx(one.contributions, abs=1e-12)


# ---------------------------------------------------------------------- they mean something
def test_the_baseline_is_an_average_row():
    """By predicting: each feature's effect is what changes when it alone becomes average."""
    frame = make_frame()
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(frame, make_labels(frame))
    means = frame[["age", "income", "owner"]].mean()
    levels = ["van", "bus", "none", None]
    for row in make_frame(30, seed=2).iloc[1:].to_dict("records"):
        why = explain_one(model, row)
        for name in ("age", "income", "owner"):
            effect = log_odds(model, [row]) - log_odds(model, [{**row, name: means[name]}])
            assert why.contributions[name] == pytest.approx(effect[0], abs=1e-9)
        effect = (
            log_odds(model, [row]) - log_odds(model, [{**row, "car": k} for k in levels]).mean()
        )
        assert why.contributions["car"] == pytest.approx(effect[0], abs=1e-9)
        average = log_odds(model, [{**means, "car": level} for level in levels]).mean()
        assert why.intercept == pytest.approx(average, abs=1e-9)


def test_the_papers_baseline_is_an_average_row_too():
    X = np.random.default_rng(1).uniform([5, -40], [9, -10], size=(2000, 2))
    model = DynamicModelTreeClassifier.paper(max_depth=0).partial_fit(X, X[:, 0] > 7)
    mean = X.mean(axis=0)
    why = explain(model, X[:10])
    np.testing.assert_allclose(why.base_values, model.decision_function([mean])[0], atol=1e-9)
    swapped = np.column_stack([np.full(10, mean[0]), X[:10, 1]])
    effect = model.decision_function(X[:10]) - model.decision_function(swapped)
    np.testing.assert_allclose(why.values[:, 0], effect, atol=1e-9)


@pytest.mark.filterwarnings("ignore:the rows hold no feature")
def test_what_is_missing_unknown_or_unseen(model):
    row = {"age": 30.0, "income": 3000.0, "car": "van", "owner": 1.0}
    why = explain_one(model, row)
    stranger = explain_one(model, {**row, "shoes": "red"})
    assert (stranger.unknown, why.unknown) == (("shoes",), ())
    assert explain_one(model, pd.Series(row)) == why
    assert replace(stranger, unknown=()) == why
    assert str(stranger) == f"{why}\nNot known to the model: 'shoes'."
    del row["age"]
    assert "'Agee' (did you mean 'age'?), 3." in str(explain_one(model, {**row, "Agee": 3, 3: 4}))
    row["age"] = 30.0
    assert "'Agee', 3." in str(explain_one(model, {**row, "Agee": 3, 3: 4}))
    absent = explain_one(model, {"income": 3000.0, "owner": 1.0})
    assert absent.row == {"age": None, "income": 3000.0, "car": None, "owner": 1.0}
    assert absent == explain_one(model, {**row, "age": math.nan, "car": None})
    assert "car is missing" in str(absent)
    unseen = explain_one(model, {**row, "car": "boat"})
    assert unseen.row["car"] == "boat"
    assert total(unseen) == pytest.approx(log_odds(model, [{**row, "car": "boat"}])[0], abs=1e-9)
    assert explain_one(model, {}).prediction in model.classes_


def test_far_out_numbers_count_as_three_deviations():
    X = np.random.default_rng(1).normal(size=(1000, 1))
    model = DynamicModelTreeClassifier().partial_fit(X, X[:, 0] > 0)
    near, far, farther = (explain_one(model, {"x0": value}) for value in (2.0, 4.0, 1e9))
    assert near.contributions["x0"] < far.contributions["x0"] == farther.contributions["x0"]
    assert farther.row == {"x0": 1e9}


def test_a_noise_floor_is_in_the_intercept_and_told(noisy):
    X = np.random.default_rng(2).uniform(size=(200, 2))
    why = explain(noisy, X)
    decisions = noisy.decision_function(X)
    np.testing.assert_allclose(why.base_values + why.values.sum(axis=1), decisions, atol=1e-9)
    for one, decision in zip(why, decisions.tolist(), strict=True):
        assert one.prediction == (decision > 0)
        plain, p = one.probabilities_without_floor[True], one.probabilities[True]
        assert sum(one.probabilities_without_floor.values()) == pytest.approx(1.0)
        assert p == pytest.approx(one.floor[1] + (1 - sum(one.floor)) * plain, abs=1e-12)
        low, high = one.intervals[True]
        assert one.floor[1] < low <= p <= high < 1 - one.floor[0]
    clear = explain_one(noisy, {"x0": 0.9, "x1": 0.95})
    assert clear.probabilities[True] < 0.9 < clear.probabilities_without_floor[True]


def test_words_lead_from_the_log_odds_to_the_probability_without_and_with_noise():
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(20_000, 2))
    y = (X.sum(axis=1) > 1) | (rng.random(len(X)) < 0.2)  # noise on one side only
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y)
    for row in ((0.9, 0.2), (0.1, 0.1), (0.47, 0.48)):
        why = explain(model, [row])[0]
        text = str(why)
        assert f"Log-odds without noise of {why.prediction} over {not why.prediction}," in text
        assert f"Noise: {percent(sum(why.floor))} of labels look random. Log-odds of " in text
        amounts = [float(word) for word in re.findall(r"(?:for|against) +(\S+)", text)]
        average, here = map(float, re.findall(r"row has (\S+), this one (\S+)\.\n", text)[0])
        assert average + sum(amounts) == pytest.approx(here, abs=0.03)
        [(odds, without, with_it)] = re.findall(
            r"of (\S+) are (\S+) without noise, (.*) with", text
        )
        assert float(odds) == here
        clean = 1 / (1 + math.exp(-here))
        assert why.probabilities_without_floor[why.prediction] == pytest.approx(clean, abs=0.003)
        assert without == percent(why.probabilities_without_floor[why.prediction])
        assert with_it == percent(why.probabilities[why.prediction])
        assert f"Prediction: {why.prediction}, {with_it} (" in text


@pytest.mark.parametrize(("n_rows", "least"), [(1000, 0.88), (8000, 0.9)])
def test_intervals_hold_the_true_log_odds_mostly(n_rows, least):
    inside, half_inside = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, weights = rng.normal(size=(n_rows, 4)), rng.normal(size=4)
        y = rng.random(n_rows) < 1 / (1 + np.exp(-(X @ weights + 0.5)))
        model = DynamicModelTreeClassifier().partial_fit(X, y)
        rows = rng.normal(size=(500, 4))
        truth = rows @ weights + 0.5
        why = explain(model, rows)
        errors = abs(model.decision_function(rows) - truth)
        inside.append(errors < 1.96 * why.deviations)
        half_inside.append(errors < 0.98 * why.deviations)
        one = why[0]
        low, high = one.intervals[True]
        assert (low < 1 / (1 + math.exp(-truth[0])) < high) == inside[-1][0]
        assert one.intervals[False] == pytest.approx((1 - high, 1 - low))
    assert np.mean(inside) > least
    assert np.mean(half_inside) < 0.95  # nor are they just wide


def test_since_when_comes_from_the_history(model, monkeypatch):
    frame = make_frame(5)
    why = explain(model, frame)[0]
    spot = model.tree_at(model._tree.engine.n_steps).nodes[why.leaf]
    shifts = [event for event in model.events_ if event.kind == "shift"]
    assert {event.node for event in shifts} == {0}  # above every leaf
    assert (why.since_step, why.since_row) == (shifts[-1].step, shifts[-1].n_rows)
    assert why.since_row > spot.since_row > 0
    assert f"in place since row {why.since_row:,}" in str(why)
    monkeypatch.setattr(model._tree, "history", None)
    assert explain(model, frame)[0].since_row is None


def test_an_explanation_stays_what_it_was():
    X = np.random.default_rng(1).normal(size=(1000, 2))
    y = X[:, 0] > 0
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    rows = X[:5].copy()
    why = explain(model, rows)
    before = str(why[0])
    rows[:] = 0.0
    model.partial_fit(X, ~y)
    assert str(why[0]) == before


# ---------------------------------------------------------------------- words
def test_words_of_two_labels(model):
    row = {"age": 30.0, "income": 2000.0, "car": "none", "owner": 0.0}
    why = explain_one(model, row)
    low, high = why.intervals["low"]
    told = {label: percent(probability) for label, probability in why.probabilities.items()}
    text = str(why)
    assert text.startswith(f"Prediction: low, {told['low']} (high {told['high']})")
    assert f"Rule: {why.path[0]} (leaf {why.leaf}, {why.rows:,.0f} rows learnt" in text
    sign = -1 if why.label == "high" else 1
    for name, words in (("income", "income = 2000"), ("car", "car = 'none'")):
        value = sign * why.contributions[name]
        assert f"{'for' if value > 0 else 'against':<7} {value:+8.2f}  {words}" in text
    assert f"this one {sign * total(why):+.2f}." in text
    assert ("`.contributions` are about high: their signs are opposite" in text) == (sign < 0)
    opposite = explain_one(model, {**row, "income": 9000.0})
    assert ("signs are opposite" in str(opposite)) == (sign > 0)
    assert low < why.probabilities["low"] < high
    assert "(95% interval)" in text
    assert "Noise" not in text


@pytest.mark.parametrize("n_labels", [2, 3])
def test_words_show_the_strongest_six_and_sum_up_the_rest(n_labels):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 10))
    y = np.digitize(X @ np.arange(1, 11), [-20.0, 20.0][: n_labels - 1])
    why = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y).explain(X)[0]
    lines = [line.split() for line in str(why).splitlines() if line.startswith("    ")]
    amounts = [float(amount) for _, amount, *_ in lines[:-1]]
    sides = [side for side, *_ in lines[:-1]]
    assert sides == ["for" if amount > 0 else "against" for amount in amounts[:6]] + ["weaker"]
    assert lines[6][2:] == ["4", "more,", "together"]
    assert sorted(map(abs, amounts[:6]), reverse=True) == [abs(amount) for amount in amounts[:6]]
    average, here = (float(word.strip(",.")) for word in (lines[-1][4], lines[-1][-1]))
    assert average + sum(amounts) == pytest.approx(here, abs=0.06)
    assert here > 0
    first, second = sorted(why.probabilities.values())[-1:-3:-1]
    assert here == pytest.approx(math.log(first / second), abs=0.006)


def test_words_of_one_label():
    model = DynamicModelTreeClassifier()
    model.learn_one({"x": 1.0}, "yes")
    assert str(explain_one(model, {"x": 1.0})) == (
        "Prediction: yes, 100%\nRule: all rows (leaf 0, 1 rows learnt, in place since row 0)\n"
        "No other label was seen so far."
    )


def test_labels_in_words_fit_a_line_and_differ():
    rng = np.random.default_rng(1)
    labels = [1, "1", "two\nlines"]
    model = DynamicModelTreeClassifier()
    for value in rng.uniform(size=600).tolist():
        model.learn_one({"a\nb": value}, labels[int(3 * value)])
    why = explain_one(model, {"a\nb": 0.1})
    text = str(why)
    assert re.match(r"Prediction: 1, \S+ \('1' \S+, two\\nlines \S+\)\n", text)
    assert "\nLog-odds of 1 over '1', compared" in text
    assert "  a\\nb = 0.1\n" in text


# ---------------------------------------------------------------------- rows
@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize(
    "chosen",
    [slice(1, 9, 3), np.arange(12) % 3 == 0, [True, False] * 6, [5, -1], slice(0, 0)],
    ids=["slice", "mask", "list of truths", "places", "nothing"],
)
def test_some_rows(n_labels, chosen):
    frame = make_frame(12)
    why = explain(learn(n_labels), frame)
    some = why[chosen]
    places = np.arange(12)[chosen]
    assert len(some) == len(places)
    assert [str(one) for one in some] == [str(why[int(i)]) for i in places]
    assert set(some.facts) == set(why.leaves[places].tolist())


def test_a_mask_of_another_length_is_refused(model):
    with pytest.raises(IndexError, match="boolean"):
        explain(model, make_frame(5))[[True, False]]


@pytest.mark.parametrize("n_rows", [1, 4096, 4097, 9000])
def test_rows_are_the_same_alone_and_among_many(model, n_rows):
    frame = make_frame(9000, seed=3)
    many, some = explain(model, frame), explain(model, frame.iloc[:n_rows])
    np.testing.assert_allclose(some.values, many.values[:n_rows], rtol=0, atol=1e-12)
    np.testing.assert_allclose(some.deviations, many.deviations[:n_rows], rtol=1e-9)


# ---------------------------------------------------------------------- errors
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_is_not_one_row(model, frame):
    with pytest.raises(TypeError, match=r"got a data frame: pass all its rows to explain, or one"):
        explain_one(model, frame({"age": [1.0]}))


def test_nothing_learnt_is_an_error():
    model = DynamicModelTreeClassifier()
    with pytest.raises(NotFittedError):
        explain_one(model, {"x": 1.0})
    with pytest.raises(NotFittedError):
        explain(model, [[1.0]])


@pytest.mark.parametrize("rows", [np.empty((0, 2)), {"x0": [], "x1": []}], ids=["array", "columns"])
def test_no_rows_are_refused_as_predict_does(noisy, rows):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        explain(noisy, rows)


def test_rows_are_counted_from_0(model):
    why = explain(model, make_frame(5))
    assert str(why[-1]) == str(why[4])
    with pytest.raises(IndexError, match="there are 5 rows, counted from 0, got 5"):
        why[5]


def test_without_shap_the_error_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    why = explain(model, make_frame(5))
    for one in (why, why[0]):
        with pytest.raises(ImportError, match=r"not installed: pip install shap"):
            one.to_shap()


# ---------------------------------------------------------------------- shap
@pytest.fixture(scope="module")
def shap():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    with warnings.catch_warnings():  # not ours: shap calls what its own dependencies deprecate
        warnings.simplefilter("ignore")
        return pytest.importorskip("shap")


@pytest.fixture
def axes(shap):
    from matplotlib import pyplot as plt

    yield lambda: plt.gcf().axes[0]
    plt.close("all")


def tick_texts(axis):
    return [label.get_text().replace("\N{MINUS SIGN}", "-") for label in axis.get_yticklabels()]


of_shap = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"
)


@of_shap
def test_one_row_as_waterfall_and_bars(model, shap, axes):
    why = explain_one(model, {"income": 2000.0, "car": "van", "owner": 1.0})
    given = why.to_shap()
    assert given.base_values + given.values.sum() == pytest.approx(total(why), abs=1e-9)
    opposite = why.to_shap(next(k for k in model.classes_ if k != why.label))
    np.testing.assert_array_equal(opposite.values, -given.values)
    for plot in (shap.plots.waterfall, shap.plots.bar):
        plot(given, show=False)
        labels = tick_texts(axes())
        assert {"van = car", "missing = age"} <= set(labels)
        axes().figure.clf()


@of_shap
def test_many_rows_as_bars_and_swarm(model, shap, axes):
    why = explain(model, make_frame(100))
    given = why.to_shap()
    assert given.shape == (100, 4)
    strongest = why.feature_names[np.abs(why.values).mean(axis=0).argmax()]
    shap.plots.bar(given, show=False)
    assert tick_texts(axes())[0] == strongest
    axes().figure.clf()
    shap.plots.beeswarm(given, show=False)
    assert tick_texts(axes())[-1] == strongest
    axes().figure.clf()
    shap.plots.waterfall(given[1], show=False)
    assert f"{why[1].row['car']} = car" in tick_texts(axes())


@of_shap
def test_more_labels_are_outputs_by_name(shap, axes):
    frame = make_frame(50)
    why = explain(learn(3), frame)
    assert replace(why, labels=[1, "1", "a\nb"]).to_shap().output_names == ["1", "'1'", r"a\nb"]
    label = why[0].prediction
    given = why.to_shap()
    assert given.shape == (50, 4, 3)
    chosen = given[0, :, label]
    np.testing.assert_allclose(chosen.values, why[0].to_shap().values)
    np.testing.assert_allclose(chosen.base_values, why[0].to_shap(label).base_values)
    shap.plots.beeswarm(given[:, :, label], show=False)
    shap.plots.waterfall(why[0].to_shap("low"), show=False)
    with pytest.raises(ValueError, match="label must be one of"):
        why[0].to_shap("nobody")


def test_a_level_that_was_never_learnt_keeps_its_own_name():
    model = DynamicModelTreeClassifier()
    for car, label in (("van", 0), ("bus", 1)) * 20:
        model.learn_one({"car": car}, label)
    why = explain_one(model, {"car": "spaceship"})
    assert why.row == {"car": "spaceship"}
    assert "any other level" not in str(why)


@of_shap
def test_shap_takes_words(shap):
    model = DynamicModelTreeClassifier(absent="zero")
    for i in range(50):
        model.learn_one({f"word{i % 7}": 1, "often": i}, i % 2)
    why = model.explain_one({"word3": 1, "often": 4})
    own = why.to_shap()
    assert set(own.feature_names) == {"word3", "often"}
    assert own.values.sum() == pytest.approx(sum(why.contributions.values()))


@pytest.mark.parametrize("batch", [1, 100])
def test_what_the_rule_does_not_know_makes_it_no_less_certain(batch):
    """Batches are learnt without the last targets, which rows that are explained have."""
    rng = np.random.default_rng(1)
    area = rng.uniform(20, 100, 4000)
    rent = 8 * area + rng.normal(0, 25, 4000)
    model = DynamicModelTreeRegressor()
    for i in range(0, 4000, batch):
        model.learn_many({"area": area[i : i + batch]}, rent[i : i + batch])
    why = model.explain_one({"area": 50.0})
    assert why.deviation < 5  # of the mean of 4,000 rows, each with an error of 25
    assert abs(sum(why.contributions.values()) + why.intercept - 400) < 3 * why.deviation + 5
