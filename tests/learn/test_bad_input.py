"""Every line of the table in docs/input.md holds, at every door, and a refusal changes nothing."""

import copy
import re
import warnings
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from bad_input import CASES, COLUMNS, LABELS, MANY, N_ROWS, NAMES, Sent, X
from doors import DOORS, ERRORS, LEARN, PAGE, PREDICT, TABLE
from driftree.learn import memory
from driftree.learn.encoding import restore_names
from driftree.learn.memory import SchemaSize
from driftree.learn.tables import DictRows
from driftree.learn.validation import InputWarning
from driftree.learn.weights import MAX_WEIGHT
from states import MODELS, check_probabilities, infinite_arrays, state_hash


def teach(model, lesson):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 3))
    y = np.where((rows[:, 0] > 0) ^ (rows[:, 1] > 0), "yes", "no")
    if lesson == "frame":
        model.partial_fit(pd.DataFrame(rows, columns=NAMES), y)
    elif lesson == "classes":
        model.partial_fit(rows[:20], y[:20], classes=[*range(MANY), "no", "yes"])
    elif lesson == "colors":
        colors = rng.choice(np.array(["red", "blue"], dtype=object), len(rows))
        model.partial_fit(np.column_stack([rows.astype(object), colors]), y)
    elif lesson == "times":
        times = [datetime(2024, 1, 1) + timedelta(hours=5 * i) for i in range(len(rows))]
        model.partial_fit(np.column_stack([rows.astype(object), np.array(times, object)]), y)
    elif lesson == "wide":
        model.partial_fit(rng.normal(size=(20, MANY)), y[:20])
    elif lesson == "numbers":
        model.partial_fit(rows, y)
    return model


TAUGHT = {}


def taught(name, lesson):
    """A copy of a model that was taught once."""
    if (name, lesson) not in TAUGHT:
        TAUGHT[name, lesson] = teach(MODELS[name](max_nodes=7), lesson)
    return copy.copy(TAUGHT[name, lesson])


def learn_on(model):
    for i in range(40):
        model.learn_one(dict(zip(NAMES, X[i % N_ROWS].tolist(), strict=True)), LABELS[i % N_ROWS])
    model.learn_many(COLUMNS, LABELS)
    return state_hash(model)


@pytest.fixture(scope="module")
def well_known():
    """How the models learn on that were sent nothing bad."""
    known = {}

    def find(name, lesson):
        if (name, lesson) not in known:
            known[name, lesson] = learn_on(taught(name, lesson))
        return known[name, lesson]

    return find


def check_refusal(name, case, door, sent, error, expected):
    model = taught(name, case.taught)
    before = state_hash(model)
    with pytest.raises(error, match=case.words) as caught:
        DOORS[door](model, sent)
    assert len(str(caught.value)) < 1000
    assert state_hash(model) == before
    assert learn_on(model) == expected


def check_reception(name, case, door, sent):
    model = taught(name, case.taught)
    before = state_hash(model)
    with warnings.catch_warnings(record=case.is_warned) as caught:
        if case.is_warned:
            warnings.simplefilter("always")
        found = DOORS[door](model, sent)
    assert [one.category for one in caught or ()] == [InputWarning] * case.is_warned
    if door in PREDICT:
        assert state_hash(model) == before
        if np.size(found[1]):
            check_probabilities(found[1])
    elif model._tree is not None:
        assert infinite_arrays(model) == []
        check_probabilities([[*model.predict_proba_one(Sent().row).values()]])
    if case.same is not None:
        twin = taught(name, case.taught)
        again = DOORS[door](twin, case.same)
        if door in LEARN:
            assert without_names(model) == without_names(twin)
        else:
            np.testing.assert_array_equal(found[1], again[1])


def without_names(model):
    """The state of a model whose levels and labels have their numbers for names."""
    model = copy.copy(model)
    encoder = model._tree.encoder
    levels = [codes and {k: k for k in codes.values()} for codes in encoder.levels]
    labels = {k: k for k in model._tree.target.labels.values()}
    restore_names(model._tree, {"names": encoder.names, "levels": levels, "labels": labels})
    return state_hash(model)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("line", CASES)
def test_the_table_holds(line, name, well_known):
    case = CASES[line]
    if name not in case.models:
        return
    for door, outcome in TABLE[line].items():
        for sent in case.sent:
            if outcome in ERRORS:
                expected = well_known(name, case.taught)
                check_refusal(name, case, door, sent, ERRORS[outcome], expected)
            elif outcome == "ok":
                check_reception(name, case, door, sent)
            else:
                assert outcome == "", f"{line}, {door}: {outcome}"


def test_the_table_has_the_lines_that_are_tested():
    assert list(TABLE) == list(CASES)


@pytest.mark.parametrize("line", CASES)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "learn_many", "learn_one"])
def test_a_refused_first_call_leaves_nothing_behind(line, method):
    door = "partial_fit" if method == "fit" else method
    if TABLE[line][door] not in ERRORS:
        return
    for sent in CASES[line].sent:
        model = MODELS["measured"]()
        before = dict(vars(model))
        try:
            if method == "fit":
                model.fit(sent.X, sent.y, sent.weights)
            else:
                LEARN[door](model, sent)
        except (TypeError, ValueError):
            assert vars(model) == before


@pytest.mark.parametrize("name", MODELS)
def test_a_refused_fit_keeps_what_was_learnt(name, well_known):
    model = taught(name, "numbers")
    before = state_hash(model)
    for bad in ((np.where(X > 0, np.inf, X), LABELS), (X[:0], []), (X, LABELS, [0] * N_ROWS)):
        with pytest.raises(ValueError, match=r"infinity|0 sample|non-zero"):
            model.fit(*bad)
        assert state_hash(model) == before
    assert learn_on(model) == well_known(name, "numbers")


# ---------------------------------------------------------------------- too much
SIZES = [(3, 2), (40, 2), (20, 10), (4, 200)]


@pytest.mark.parametrize(("n_features", "n_classes"), SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_the_budget_knows_what_a_leaf_takes(name, n_features, n_classes):
    rng = np.random.default_rng(1)
    own = {"max_nodes": 1}
    if name != "FIMT-DD":  # without a history no rows are kept
        own = {"epsilon": 1e-300, "max_nodes": 3, "keep_history": False}
    model = MODELS[name](**own)
    for _ in range(12):
        rows = rng.normal(size=(200, n_features))
        model.partial_fit(rows, rng.integers(0, n_classes, 200), classes=np.arange(n_classes))
    assert model.n_nodes_ == 1
    size = SchemaSize(n_features, 0, n_features + 1, n_classes)
    fixed = array_bytes(MODELS[name](**own).fit([[1.0]], [0]))  # arrays of one number per node
    # rows that wait take room, too, and are no part of the arrays
    assert 0.5 < model._tree.leaf_bytes(size) / (array_bytes(model) - fixed) < 2.5


def array_bytes(model):
    return sum(array.nbytes for array in model._tree.engine.arrays().values())


@pytest.mark.parametrize("name", MODELS)
def test_what_comes_bit_by_bit_is_refused_as_well(name, monkeypatch):
    """Levels, missing values and labels make the models larger, too."""
    monkeypatch.setattr(memory, "MOST_BYTES", 100_000)
    model = taught(name, "colors")
    twin = copy.copy(model)
    with pytest.raises(ValueError, match="would take"):  # noqa: PT012 (somewhere on the way)
        for i in range(MANY):
            model.learn_one({f"n{i}": 1.0}, "no")
            twin.learn_one({f"n{i}": 1.0}, "no")
    assert state_hash(model) == state_hash(twin)
    with pytest.raises(ValueError, match="would take"):
        model.learn_many({"x0": [1.0] * 3000}, list(range(3000)))
    assert state_hash(model) == state_hash(twin)


@pytest.mark.parametrize("name", MODELS)
def test_very_many_names_in_dicts_are_refused_before_a_table_is_made(name, monkeypatch):
    model = taught(name, "colors")
    twin = copy.copy(model)
    monkeypatch.setattr(DictRows, "arrays", property(lambda _: pytest.fail("a table was made")))
    with pytest.raises(ValueError, match="would take"):
        model.learn_many([{f"n{i}": 1.0} for i in range(60_000)], ["no"] * 60_000)
    assert state_hash(model) == state_hash(twin)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_million_rows_at_once(name):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1_000_000, 5))
    y = rows[:, 0] + rows[:, 1] > 0
    model = MODELS[name]().partial_fit(rows, y)
    assert model.n_rows_seen_ == 1_000_000
    assert infinite_arrays(model) == []
    proba = model.predict_proba(rows)
    check_probabilities(proba)
    assert (proba.argmax(axis=1) == y).mean() > 0.9


def test_the_page_has_the_limits():
    text = PAGE.read_text(encoding="utf-8")
    assert f"more than {memory.MOST_BYTES // 2**30} GiB" in text
    assert f"at most {MAX_WEIGHT:.0e}".replace("+", "") in text
    sizes = re.findall(r"^\| ([\d,]+) \| (.*) \| (.*) \| (.*) \|$", text, flags=re.MULTILINE)
    assert len(sizes) > 4
    for features, *figures in sizes:
        n = int(features.replace(",", ""))
        for name, figure in zip(MODELS, figures, strict=True):
            needed = taught(name, "numbers")._tree.leaf_bytes(SchemaSize(n, 0, n + 1, 2))
            is_refused = needed > memory.MOST_BYTES
            assert figure == ("refused" if is_refused else f"{needed / 1e6:,.0f} MB"), (n, name)
