"""Parameters: every value out of range is refused with the range; docs and signature agree."""

import inspect
import math
import re

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier
from driftree.learn.parameters import Parameters

X, Y = [[0.0, 1.0], [1.0, 0.0]], [0, 1]

# parameter: (what an error must say, values at the edges that are fine, values that are not)
NUMBERS = {
    "epsilon": ("above 0 and at most 1", [1e-300, 1.0, 1], [0.0, -0.1, 1.5, math.nan, math.inf]),
    "evidence_window": ("at least 1", [1, 1.0, 1e12, math.inf], [0, 0.5, -1, math.nan]),
    "memory": ("at least 1", [1, 2.5, 1e12, math.inf], [0, 0.5, -1, math.nan]),
    "max_nodes": ("from 1 to 65535", [1, 65535], [0, -1, 65536, 10**30]),
    "max_depth": ("from 0 to 1000", [0, 1000], [-1, 1001]),
    "bins": ("from 2 to 1024", [2, 1024], [1, 0, -5, 1025]),
    "trials": ("from 1 to 64", [1, 64], [0, -1, 65]),
    "learning_rate": ("above 0", [1e-300, 1.0], [0.0, -0.05, math.nan]),
    "gain_step": ("above 0", [1e-300, 10.0, None], [0.0, -0.05, math.nan]),
    "candidates": ("from 1 to 1024", [1, 1024], [0, -3, 1025]),
    "replacement_rate": ("from 0 to 1", [0, 0.0, 1.0], [-0.1, 1.1, math.nan, math.inf]),
    "seed": ("from 0 to 2**64 - 1", [0, 2**63], [-1, 2**64, 10**30]),
}
WHOLE = ["max_nodes", "max_depth", "bins", "trials", "candidates", "seed"]
NOT_NUMBERS = ["5", [5], True, 1j]


def every(place):
    return [(name, value) for name, row in NUMBERS.items() for value in row[place]]


@pytest.mark.parametrize(("name", "value"), every(1))
def test_values_at_the_edges_are_fine(name, value):
    setting = "paper" if name in ("learning_rate", "gain_step", "candidates") else "measured"
    model = DynamicModelTreeClassifier(setting=setting, **{name: value})
    assert np.isfinite(model.partial_fit(X, Y).predict_proba(X)).all()


@pytest.mark.parametrize(("name", "value"), every(2))
def test_an_error_names_the_parameter_the_range_and_the_value(name, value):
    model = DynamicModelTreeClassifier(**{name: value})  # scikit-learn: nothing is checked here
    words = f"{name} must be .*{re.escape(NUMBERS[name][0])}.*{re.escape(repr(value))}"
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, Y)
    with pytest.raises(ValueError, match=words):
        model.learn_one({"a": 1.0}, 1)
    assert model.n_rows_seen_ == 0


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_a_value_of_another_type_is_refused(name, value):
    words = f"{name} must be a (whole )?number .*{re.escape(NUMBERS[name][0])}"
    with pytest.raises(TypeError, match=words):
        DynamicModelTreeClassifier(**{name: value}).partial_fit(X, Y)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_number_is_needed(name):
    with pytest.raises(TypeError, match=f"{name} must be a whole number"):
        DynamicModelTreeClassifier(**{name: 2.5}).partial_fit(X, Y)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_are_numbers(name):
    value = np.int64(3) if name in WHOLE else np.float32(0.5 if "rate" in name else 1.0)
    assert DynamicModelTreeClassifier(**{name: value}).partial_fit(X, Y).n_rows_seen_ == 2


@pytest.mark.parametrize("name", ["learning_rate", "gain_step"])
def test_an_infinite_step_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        DynamicModelTreeClassifier.paper(**{name: math.inf}).partial_fit(X, Y)


def test_the_largest_seed_is_a_seed():
    DynamicModelTreeClassifier(seed=2**64 - 1).partial_fit(X, Y)


@pytest.mark.parametrize("value", ["Paper", "", None, 1])
def test_an_unknown_setting_is_refused(value):
    with pytest.raises(ValueError, match=f"'measured' or 'paper', got {value!r}"):
        DynamicModelTreeClassifier(setting=value).partial_fit(X, Y)


def test_paper_is_the_same_class_with_the_papers_defaults():
    paper = DynamicModelTreeClassifier.paper().get_params()
    ours = DynamicModelTreeClassifier().get_params()
    changed = {name: value for name, value in paper.items() if value != ours[name]}
    assert changed == {"setting": "paper", "epsilon": 1e-7}
    assert DynamicModelTreeClassifier.paper(candidates=7, epsilon=0.5).candidates == 7


# ---------------------------------------------------------------------- documentation
def documented(docstring):
    """{name: type and default} of the section "Parameters"."""
    section = inspect.cleandoc(docstring).split("Parameters\n----------\n")[1]
    section = section.split("\n\n")[0]
    return dict(re.findall(r"^(\w+) : (.+)$", section, flags=re.MULTILINE))


def test_documented_parameters_equal_the_signature():
    signature = inspect.signature(DynamicModelTreeClassifier).parameters
    docs = documented(DynamicModelTreeClassifier.__doc__)
    assert list(docs) == list(signature)
    for name, parameter in signature.items():
        default = parameter.default
        text = f'"{default}"' if isinstance(default, str) else repr(default)
        stated = docs[name].split("default=")[1]
        assert stated == text or float(stated) == float(default), name
        assert parameter.kind is parameter.KEYWORD_ONLY


def test_every_parameter_is_checked_and_has_a_row_in_this_file():
    parameters = set(inspect.signature(DynamicModelTreeClassifier).parameters)
    assert parameters == {*NUMBERS, "setting", "categorical"}
    assert set(Parameters.__dataclass_fields__) == {*NUMBERS, "setting"}
