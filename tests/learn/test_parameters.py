"""Parameters: every value out of range is refused with the range; docs and signature agree."""

import inspect
import math
import re

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.learn.parameters import (
    SETTINGS,
    FIMTDDParameters,
    MeasuredParameters,
    PaperParameters,
)

X, Y = [[0.0, 1.0], [1.0, 0.0]], [0, 1]

# parameter: (what an error must say, values at the edges that are fine, values that are not)
NUMBERS = {
    "epsilon": ("above 0 and at most 1", [1e-300, 1.0, 1], [0.0, -0.1, 1.5, math.nan, math.inf]),
    "evidence_window": ("at least 1", [1, 1.0, 1e12, math.inf], [0, 0.5, -1, math.nan]),
    "model_window": ("at least 1", [1, 2.5, 1e12, math.inf], [0, 0.5, -1, math.nan]),
    "max_nodes": ("from 1 to 65535", [1, 65535], [0, -1, 65536, 10**30]),
    "max_depth": ("from 0 to 1000", [0, 1000], [-1, 1001]),
    "bins": ("from 2 to 1024", [2, 1024], [1, 0, -5, 1025]),
    "trials": ("from 1 to 64", [1, 64], [0, -1, 65]),
    "max_bends": ("from 0 to 1024", [0, 1, 1024], [-1, 1025]),
    "max_features": ("from 1 to 2**31 - 1", [1, 2**31 - 1], [0, -1, 2**31]),
    "learning_rate": ("above 0", [1e-300, 1.0], [0.0, -0.05, math.nan]),
    "gain_step": ("above 0", [1e-300, 10.0, None], [0.0, -0.05, math.nan, math.inf]),
    "candidates": ("from 1 to 1024", [1, 1024], [0, -3, 1025]),
    "replacement_rate": ("from 0 to 1", [0, 0.0, 1.0], [-0.1, 1.1, math.nan, math.inf]),
    "seed": ("from 0 to 2**64 - 1", [0, 2**63], [-1, 2**64, 10**30]),
    "n_jobs": ("-1 for one per core", [1, 2, -1, -1000, None], [0, 1025, 10**30]),
}
FIMTDD_NUMBERS = {
    "learning_rate": NUMBERS["learning_rate"],
    "delta": ("above 0 and at most 1", [1e-300, 1.0], [0.0, -0.1, 1.5, math.nan]),
    "tie_threshold": ("from 0 to 1", [0, 1.0], [-0.1, 1.1, math.nan]),
    "grace_period": ("from 1 to 1e9", [1, 10**9], [0, -5, 10**10]),
    "drift_tolerance": ("from 0 to 1", [0.0, 1], [-0.1, 1.1, math.nan]),
    "drift_threshold": ("above 0", [1e-300, 1e12, math.inf], [0.0, -50.0, math.nan]),
    "max_nodes": NUMBERS["max_nodes"],
    "max_depth": NUMBERS["max_depth"],
}
TABLES = {DynamicModelTreeClassifier: NUMBERS, FIMTDDClassifier: FIMTDD_NUMBERS}
WHOLE = [
    *("max_nodes", "max_depth", "bins", "trials", "max_bends", "candidates", "seed"),
    *("max_features", "grace_period", "n_jobs"),
]
NOT_NUMBERS = ["5", [5], True, 1j]
MEASURED = ["evidence_window", "model_window", "bins", "trials", "max_bends", "absent"]
MEASURED += ["max_features"]
PAPER = ["learning_rate", "gain_step", "candidates", "replacement_rate"]


def make(kind, name, value):
    """A learner with this parameter, in its setting."""
    is_papers = kind is DynamicModelTreeClassifier and name in PAPER
    return kind(**{name: value}, **({"setting": "paper"} if is_papers else {}))


every_number = pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, table in TABLES.items() for name in table]
)


def every(place):
    return [
        (kind, name, value)
        for kind, table in TABLES.items()
        for name, row in table.items()
        for value in row[place]
    ]


@pytest.mark.parametrize(("kind", "name", "value"), every(1))
def test_values_at_the_edges_are_fine(kind, name, value):
    model = make(kind, name, value)
    assert np.isfinite(model.partial_fit(X, Y).predict_proba(X)).all()


@pytest.mark.parametrize(("kind", "name", "value"), every(2))
def test_an_error_names_the_parameter_the_range_and_the_value(kind, name, value):
    model = make(kind, name, value)  # scikit-learn: nothing is checked here
    words = f"{name} must be .*{re.escape(TABLES[kind][name][0])}.*{re.escape(repr(value))}"
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, Y)
    with pytest.raises(ValueError, match=words):
        model.learn_one({"a": 1.0}, 1)
    assert not hasattr(model, "n_rows_seen_")


@every_number
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_a_value_of_another_type_is_refused(kind, name, value):
    words = f"{name} must be a (whole )?number .*{re.escape(TABLES[kind][name][0])}"
    with pytest.raises(TypeError, match=words):
        make(kind, name, value).partial_fit(X, Y)


@pytest.mark.parametrize("kind", TABLES)
def test_a_whole_number_is_needed_for_counts(kind):
    for name in set(WHOLE) & TABLES[kind].keys():
        with pytest.raises(TypeError, match=f"{name} must be a whole number"):
            make(kind, name, 2.5).partial_fit(X, Y)


@every_number
def test_numbers_of_numpy_are_numbers(kind, name):
    value = np.int64(3) if name in WHOLE else np.float32(0.5 if "rate" in name else 1.0)
    assert make(kind, name, value).partial_fit(X, Y).n_rows_seen_ == 2


@pytest.mark.parametrize("name", ["learning_rate", "gain_step"])
def test_an_infinite_step_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        DynamicModelTreeClassifier.paper(**{name: math.inf}).partial_fit(X, Y)


def test_the_largest_seed_is_a_seed():
    DynamicModelTreeClassifier(seed=2**64 - 1).partial_fit(X, Y)


@pytest.mark.parametrize("value", ["Paper", "", None, 1, ["paper"]])
def test_an_unknown_setting_is_refused(value):
    with pytest.raises(ValueError, match=f"'measured' or 'paper', got {re.escape(repr(value))}"):
        DynamicModelTreeClassifier(setting=value).partial_fit(X, Y)


def test_paper_is_the_same_class_with_the_papers_defaults():
    paper = DynamicModelTreeClassifier.paper().get_params()
    ours = DynamicModelTreeClassifier().get_params()
    changed = {name: value for name, value in paper.items() if value != ours[name]}
    assert changed == {"setting": "paper"}
    assert repr(DynamicModelTreeClassifier.paper()) == "DynamicModelTreeClassifier(setting='paper')"
    assert DynamicModelTreeClassifier.paper(candidates=7, epsilon=0.5).candidates == 7


# ---------------------------------------------------------------------- settings
DEFAULTS = {
    "measured": {
        "epsilon": 1e-8,
        "evidence_window": 20000,
        "model_window": 1000,
        "bins": 64,
        "trials": 3,
        "max_bends": 128,
        "absent": "missing",
        "max_features": 2**18,
    },
    "paper": {
        "epsilon": 1e-7,
        "learning_rate": 0.05,
        "gain_step": 0.05,
        "candidates": 3,
        "replacement_rate": 0.5,
    },
}


def resolved(**parameters):
    return DynamicModelTreeClassifier(**parameters).partial_fit(X, Y)._tree.parameters


@pytest.mark.parametrize("setting", DEFAULTS)
def test_none_is_the_settings_own_default(setting):
    found = resolved(setting=setting)
    assert {name: getattr(found, name) for name in DEFAULTS[setting]} == DEFAULTS[setting]
    explicit = resolved(setting=setting, **DEFAULTS[setting])
    assert explicit == found


def test_the_documentation_states_these_defaults():
    text = " ".join(DynamicModelTreeClassifier.__doc__.split())
    for name, value in DEFAULTS["measured"].items() | DEFAULTS["paper"].items():
        if name not in ("epsilon", "gain_step", "absent"):
            stated = text.split(f"{name} : ")[1].split("None is ")[1].split(". ")[0]
            assert float(stated.rstrip(".").replace(",", "")) == value, name
    assert "None is 1e-8 (1e-14 with ``max_bends=0``), in the paper's setting 1e-7" in text
    assert resolved(max_bends=0).epsilon == 1e-14
    assert resolved(max_bends=0, epsilon=0.1).epsilon == 0.1
    assert resolved(setting="paper", learning_rate=0.3).gain_step == 0.3


@pytest.mark.parametrize(
    ("setting", "name"),
    [*(("paper", name) for name in MEASURED), *(("measured", name) for name in PAPER)],
)
def test_a_parameter_of_the_other_setting_is_refused_when_learning_starts(setting, name):
    other = "measured" if setting == "paper" else "paper"
    value = DEFAULTS[other][name]
    model = DynamicModelTreeClassifier(**{name: value}, setting=setting)
    words = f"{name}={value!r} belongs to setting='{other}', but the setting is '{setting}'"
    for learn in (lambda: model.partial_fit(X, Y), lambda: model.learn_one({"a": 1.0}, 1)):
        with pytest.raises(ValueError, match=re.escape(words)):
            learn()
    assert not hasattr(model, "classes_")


def test_set_params_changes_the_setting_as_a_whole():
    model = DynamicModelTreeClassifier().fit(X, Y).set_params(setting="paper").fit(X, Y)
    assert model._tree.parameters == DynamicModelTreeClassifier.paper().fit(X, Y)._tree.parameters


def test_a_setting_reads_nothing_of_the_other():
    assert not {*PAPER} & MeasuredParameters.__dataclass_fields__.keys()
    assert not {*MEASURED} & PaperParameters.__dataclass_fields__.keys()


# ---------------------------------------------------------------------- documentation
def documented(docstring):
    """{name: type and default} of the section "Parameters"."""
    section = inspect.cleandoc(docstring).split("Parameters\n----------\n")[1]
    section = section.split("\n\n")[0]
    return dict(re.findall(r"^(\w+) : (.+)$", section, flags=re.MULTILINE))


@pytest.mark.parametrize("kind", TABLES)
def test_documented_parameters_equal_the_signature(kind):
    signature = inspect.signature(kind).parameters
    docs = documented(kind.__doc__)
    assert list(docs) == list(signature)
    for name, parameter in signature.items():
        default = parameter.default
        text = f'"{default}"' if isinstance(default, str) else repr(default)
        stated = docs[name].split("default=")[1]
        assert stated == text or (default is not None and float(stated) == float(default)), name
        assert parameter.kind is parameter.KEYWORD_ONLY


def test_every_parameter_is_checked_and_has_a_row_in_this_file():
    parameters = set(inspect.signature(DynamicModelTreeClassifier).parameters)
    others = {"setting", "keep_history", "absent", "class_weight", "threshold"}
    assert parameters == {*NUMBERS, *others, "categorical"}
    fields = {name for kind in SETTINGS.values() for name in kind.__dataclass_fields__}
    assert fields == {*NUMBERS, *others} - {"n_jobs"}  # not the tree's
    parameters = set(inspect.signature(FIMTDDClassifier).parameters)
    assert parameters == {*FIMTDD_NUMBERS, "categorical"}
    assert set(FIMTDDParameters.__dataclass_fields__) == {*FIMTDD_NUMBERS}
