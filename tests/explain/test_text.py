"""The tree as text."""

import math

import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, export_text
from driftree.explain.describe import leaf_models
from readable_models import FEEDS, just_split, learn, make_rows, many, noisy, one_label


def test_same_text_from_dicts_arrays_and_frames():
    [text] = {export_text(learn(feed)) for feed in FEEDS}
    assert "|--- x0 <= " in text
    assert "(x2 == " in text


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
