"""The tree as text."""

import math
import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor, export_text
from driftree.explain.describe import leaf_models
from driftree.explain.markup import tree_html
from driftree.explain.text import label_texts, one_line, shorten_together, write_number
from driftree.explain.tree_data import to_dot
from driftree.learn.units import Unit
from readable_models import FEEDS, just_split, learn, make_rows, many, noisy, one_label


def test_same_text_from_dicts_arrays_and_frames():
    [text] = {export_text(learn(feed)) for feed in FEEDS}
    assert re.search(r"^\|--- x[01] <= ", text)  # both are right: it is an exclusive or of them
    assert "(x2 == " in text


@pytest.mark.parametrize("settings", [{}, {"setting": "paper"}])
@pytest.mark.parametrize(
    ("mean", "spread"),
    [
        (0, 1),
        (40, 20),
        (2007, 5),
        (-2007.4, 5),
        (1.7e9, 1e6),
        (1.7e9, 3e3),
        (3e-9, 2e-9),
        (9, 1e-6),
    ],
)
def test_a_formula_can_be_computed_by_hand(mean, spread, settings):
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4000, 2))
    y = rng.random(len(z)) < 1 / (1 + np.exp(-z @ [1.5, -1.0]))
    X = np.column_stack([mean + spread * z[:, 0], z[:, 1]])
    model = DynamicModelTreeClassifier(max_depth=0, **settings).partial_fit(X, y)
    formula = export_text(model, max_weights=99, width=10_000).split("log-odds of True = ")[1]
    typical = X[np.abs(z).max(axis=1) < 2][:200]
    for (x0, x1), expected in zip(typical, model.decision_function(typical), strict=True):
        value = eval(formula.replace(",", ""), {"x0": x0, "x1": x1})
        assert value == pytest.approx(expected, abs=0.05)


def test_what_is_far_from_zero_is_written_as_a_round_difference():
    X = np.random.default_rng(1).normal([2011.3, -90.2, 5.0], [9.0, 2.0, 4.0], size=(500, 3))
    text = export_text(DynamicModelTreeClassifier().partial_fit(X, X.sum(axis=1) > 1926))
    assert " * (x0 - 2011)" in text
    assert " * (x1 + 90.2)" in text
    assert " * x2" in text


def test_labels_that_print_the_same_are_told_apart():
    model = DynamicModelTreeClassifier()
    for label in (1, "1"):
        model.learn_one({"x": float(label)}, label)
    assert "log-odds of '1' = " in export_text(model)
    for text in (str(model.rules()[0]), to_dot(model)):
        assert re.search(r"[ \"l]1 50%", text)
        assert "'1' 50%" in text
        assert "og-odds of '1'" in text
    assert "log-odds of &#x27;1&#x27;:" in tree_html(model)
    long = [f"a label with quite some words in it{k} and more of them at its end" for k in "ab"]
    assert len(set(label_texts(long).values())) == 2


@pytest.mark.parametrize("most", [13, 40])
def test_texts_shortened_together_stay_distinct(most):
    names = [f"o\n{'one and ' * 9}{k}{' the other' * 9}" for k in range(30)] + ["short", "a" * 99]
    short = shorten_together(names, lambda text, part: one_line(text, int(part * most)))
    assert list(short) == names
    assert len(set(short.values())) == len(names)
    assert short["short"] == "short"
    assert all(text.isprintable() for text in short.values())
    assert max(map(len, short.values())) <= most


def test_max_weights_and_width_shape_the_text():
    model = learn()
    short = export_text(model, max_weights=0)
    assert "*" not in short
    assert "weaker" in short
    narrow = export_text(model, max_weights=5, width=60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert " ".join(narrow.replace("|", " ").split()) == " ".join(
        export_text(model, max_weights=5, width=10_000).replace("|", " ").split()
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"max_weights": -1}, "max_weights must be at least 0"), ({"digits": 0}, "digits")],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        export_text(one_label(), **parameters)


def test_nothing_learnt_is_an_error():
    with pytest.raises(NotFittedError):
        export_text(DynamicModelTreeClassifier())


def test_missing_values_are_mentioned_only_where_there_were_any():
    X, y = make_rows(3000)
    text = export_text(DynamicModelTreeClassifier().partial_fit(X, y))
    assert "missing" not in text
    X[::3, 0] = math.nan
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    assert "x0 is missing" in "".join(leaf_models(model)[0].weights[model.classes_[1]])
    assert "x1 is missing" not in export_text(model, max_weights=9)


def test_a_leaf_that_has_seen_nothing_says_so():
    model = just_split()
    assert export_text(model).count("no rows yet") == 2
    assert all(math.isnan(leaf.share) for leaf in leaf_models(model))


def test_one_label_has_no_odds():
    assert export_text(one_label()) == "|--- leaf 0: 100% of rows"


def test_a_noise_floor_is_said():
    floors = {leaf.floor for leaf in leaf_models(noisy())}
    assert all(0.02 < sum(floor) < 0.3 for floor in floors)
    assert "of labels look random" in export_text(noisy())


def test_many_leaves_labels_and_long_names_stay_readable():
    model = many()
    lines = export_text(model).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line.startswith("|") for line in lines)  # the line breaks in the names are no lines
    assert sum("--- leaf " in line for line in lines) == model.n_leaves_ > 40
    assert sum("logit of " in line for line in lines) == 5 * model.n_leaves_
    assert sum(line.endswith("and 15 rarer labels") for line in lines) == model.n_leaves_
    conditions = [line for line in lines if " <= " in line]
    assert conditions  # the end of a name, which tells it from others, and the number stay
    assert all("…" in line and line.split("on ")[-1][0].isdigit() for line in conditions)


def test_numbers_that_stand_for_levels_are_said():
    """The paper's models know categories as numbers; whoever computes a formula needs them."""
    model = DynamicModelTreeClassifier.paper()
    for car, label in (("van", 0), ("bus", 1), ("tram", 0)):
        model.learn_one({"car": car, "age": 3.0}, label)
    assert (
        export_text(model).splitlines()[-1]
        == "car in formulas: 'van' is 0, 'bus' is 1, 'tram' is 2"
    )
    ours = DynamicModelTreeClassifier()
    ours.learn_one({"car": "van"}, 0)
    assert "in formulas" not in export_text(ours)


@pytest.mark.parametrize(
    ("factor", "shift"), [(1.0, 0.0), (30.0, 2e6), (1e-9, 0.0), (1e9, 1e12), (0.01, -3.0)]
)
def test_the_formula_of_a_number_can_be_computed_by_hand(factor, shift):
    rng = np.random.default_rng(1)
    X = rng.normal([40, 0], [5, 1], size=(3000, 2))
    y = factor * (X @ [0.5, -2.0] + rng.normal(0, 0.1, 3000)) + shift
    model = DynamicModelTreeRegressor(
        follow_target=False, max_depth=0, max_bends=0, absent="missing"
    )
    for row, number in zip(X.tolist(), y.tolist(), strict=True):
        model.learn_one({"age": row[0], "x": row[1]}, number)
    leaf, formula = export_text(model, digits=4).split("\n")
    assert re.fullmatch(r"\|--- leaf 0: 100% of rows, mean \S+, error about \S+", leaf)
    left, right = formula.strip().split(" = ")
    assert left == "y"
    for age, x in X[:20].tolist():
        found = eval(right, {"age": age, "x": x})
        assert found == pytest.approx(model.predict_one({"age": age, "x": x}), abs=factor * 0.05)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (213.456, Unit(200.0, 45.0), "213.46"),
        (0.0, Unit(0.0, 1.0), "0.000"),
        (12345.678, Unit(0.0, 9e3), "12,346"),
        (-1.5e-12, Unit(0.0, 1e-12), "-1.500e-12"),
        (2e300, Unit(0.0, 1e300), "2.000e+300"),
        (0.0, Unit(0.0, 1e-12), "0"),
        (5.0, Unit(0.0, math.inf), "5.000"),
        (17.23456, Unit(3.0, 1.0, has_log_link=True), "17.23"),
    ],
)
def test_numbers_are_written_as_far_as_they_matter(value, unit, text):
    assert float(write_number(value, unit).replace(",", "")) == pytest.approx(
        float(text.replace(",", "")), abs=unit.factor * 1e-3 if unit.factor < math.inf else 1e-3
    )
    assert len(write_number(value, unit)) <= len(text)
    assert write_number(value, unit, signed=True).lstrip("+") == write_number(value, unit)
