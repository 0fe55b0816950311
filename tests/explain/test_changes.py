"""Why the tree changed: in words, as a frame, and between any two steps."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier
from driftree.explain import changes, gain_race, outline
from driftree.explain.tree_data import tell_event
from driftree.learn import history as history_module
from driftree.learn.events import Condition, MemoryChange, Prune, Split, join_path
from readable_models import NUMBERS, paper
from shifts import FIGURES, add_shift, learn_deep, shift_and_back


@pytest.fixture(scope="module")
def model():
    """A rule that needs a split on age, and later one on income; lines stay straight."""
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier(max_bends=0)
    for row in range(8000):
        age, income = rng.uniform(20, 80), rng.uniform(0, 90)
        label = (age > 50) ^ (income > 45) if row < 3000 else income > 30
        model.learn_one({"age": age, "income": income}, "granted" if label else "refused")
    assert {event.kind for event in model.events_} >= {"split", "prune"}
    return model


# ---------------------------------------------------------------------- why
def test_a_step_with_a_change_gives_its_sentence(model):
    for event in model.events_:
        assert str(event) in model.why(step=event.step)
        assert str(event) in model.why(step=event.step, node=event.node)


def test_a_step_without_a_change_says_so_and_gives_the_one_before(model):
    first, second = model.events_[:2]
    assert second.step > first.step + 1
    answer = model.why(step=first.step + 1)
    assert answer.startswith(f"Nothing changed at step {first.step + 1:,}. ")
    assert answer.endswith(str(first))
    before = model.why(step=first.step - 1)
    assert before == f"Nothing changed at step {first.step - 1:,}: no candidate had gained enough."
    assert model.why() == str(model.events_[-1])


def test_a_node_says_what_it_is_and_how_near_the_next_change_is(model):
    first = model.events_[0]
    answer = model.why(node=0).splitlines()
    assert answer[0] == f"Node 0, all rows, is split by {first.condition} since row {first.n_rows}."
    assert answer[1] == str(first)
    assert answer[2].startswith("Removing the split has a gain of -")
    assert answer[3].startswith("The best other split at present, ")
    assert all(line.endswith(" required.") for line in answer[2:])


def test_a_leaf_that_a_split_made_gives_that_split():
    X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    [event] = model.events_
    assert isinstance(event, Split)
    for leaf in (event.left, event.right):
        assert str(event) in model.why(node=leaf)
        assert "is a leaf since row 1,000" in model.why(node=leaf)


def test_a_node_is_not_told_what_happened_to_another_of_its_id():
    """Nodes are pruned, and their ids given to others: each is told its own changes only."""
    X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    [first] = model.events_
    test = Condition("x0", "<=", 5.0)
    figures = {name: getattr(first, name) for name in ("gain", "threshold", "loss_before")}
    figures |= {"loss_after": 1.0, "rows": 10.0}
    log = model._tree.history

    def add(kind, node, step, **more):
        log.add(kind(step=step, n_rows=1200 + step, node=node, path=(), **figures, **more))

    add(Split, 1, 6, condition=test, left=3, right=4)
    add(Prune, 0, 7, old_condition=first.condition, removed=log.below(0))
    add(Split, 0, 8, condition=test, left=1, right=2)
    assert "is a leaf since row 1,208" in model.why(node=1)
    assert "Row 1,206" not in model.why(node=1)
    assert model.why(step=10, node=1).endswith(str(model.events_[-1]))
    assert model.why(step=6, node=1) == str(model.events_[1])


def test_a_node_was_not_unchanged_in_the_step_that_made_it():
    X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    [event] = model.events_
    assert model.why(step=event.step, node=event.left) == str(event)


def test_what_was_folded_is_said_to_be_unknown(monkeypatch):
    monkeypatch.setattr(history_module, "MAX_EVENTS", 0)
    X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    assert model.events_ == []
    answer = model.why(step=5)
    assert answer.startswith("The log begins after step 5 (row 1,000): the reasons of")
    assert "no longer known" in model.why(step=9, node=1)
    assert "since row 1,000" in model.why(node=1)


def test_a_full_tree_says_that_it_may_not_grow():
    X = np.random.default_rng(1).uniform(-1, 1, size=(1000, 2))
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, X[:, 0] > 0)
    assert "max_nodes or max_depth" in model.why(node=0)
    assert model.why() == "Nothing changed so far: no candidate had gained enough."


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"step": 9000}, "step must be a whole number from 0 .* to 8000, got 9000"),
        ({"step": -1}, "got -1"),
        ({"step": 2.5}, "got 2.5"),
        ({"node": 99}, "there is no node 99 at present; there are 0"),
        ({"node": "0"}, "there is no node '0' at present; there are 0"),
        ({"step": 2, "node": 1}, "there is no node 1 after step 2; there are 0"),
    ],
)
def test_wrong_questions_are_told_what_there_is(model, question, words):
    with pytest.raises(ValueError, match=words):
        model.why(**question)


def test_before_anything_was_learnt_there_is_nothing_to_ask():
    for ask in ("why", "history"):
        with pytest.raises(NotFittedError):
            getattr(DynamicModelTreeClassifier(), ask)()


# ---------------------------------------------------------------------- history
def test_the_frame_has_every_figure_of_every_event(model):
    frame = model.history()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == len(model.events_)
    for row, event in zip(frame.to_dict("records"), model.events_, strict=True):
        names = ("step", "n_rows", "kind", "node", "gain", "threshold", "rows", "n_removed")
        for name in (*names, "loss_before", "loss_after"):
            assert row[name] == getattr(event, name)
        assert row["why"] == str(event)
        assert row["depth"] == len(event.path)
        for name in ("condition", "old_condition"):  # a missing one is no text
            assert pd.isna(row[name]) == (getattr(event, name, None) is None)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_the_frame_is_of_the_library_that_is_wanted(model, library):
    frame = model.history(library=library)
    assert type(frame).__module__.split(".")[0] == library
    assert len(frame) == len(model.events_)
    nothing = DynamicModelTreeClassifier().partial_fit([[1.0], [2.0]], [0, 1])
    empty = nothing.history(library=library)
    names = empty.columns if isinstance(empty, pl.DataFrame) else empty.column_names
    assert len(empty) == 0
    assert list(names)[:3] == ["step", "n_rows", "kind"]


def test_a_library_that_is_not_there_is_an_error_that_says_what_to_do(model, monkeypatch):
    with pytest.raises(ValueError, match="one of pandas, polars, pyarrow, got 'excel'"):
        model.history(library="excel")
    monkeypatch.setattr(changes, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs pandas or polars or pyarrow: pip install pandas"):
        model.history()
    with pytest.raises(ImportError, match="pip install polars"):
        model.history(library="polars")


# ---------------------------------------------------------------------- diff
def test_a_difference_names_what_went_what_came_and_why(model):
    split, *_, last = model.events_
    between = model.diff(split.step - 1, split.step)
    assert between.events == [split]
    assert between.removed == [()]
    assert len(between.added) == 2
    assert between.kept == []
    text = str(between)
    assert text.startswith("1 split; from 1 leaf to 2 leaves.")
    assert "Gone: all rows" in text
    assert f"New: rows with {split.condition}" in text
    assert str(split) in text
    assert not model.diff(last.step, last.step)
    assert str(model.diff(last.step, last.step)) == "Nothing changed."
    with pytest.raises(ValueError, match="must not be later"):
        model.diff(5, 4)


def test_the_papers_nodes_say_how_near_they_are_to_a_change():
    for node in paper().tree_at(paper()._tree.engine.n_steps).nodes:
        assert " required." in paper().why(node=node)


@pytest.mark.parametrize("make", NUMBERS.values(), ids=NUMBERS)
def test_changes_of_a_regressor_are_told_like_those_of_a_classifier(make):
    model = make()
    log = model.history()
    assert log["why"].tolist() == [str(event) for event in model.events_]
    assert not log["why"].str.contains("label|probab|odds|nan").any()
    assert log["loss_before"].sub(log["loss_after"]).sub(log["gain"]).abs().max() < 1e-6
    last = model.events_[-1]
    assert model.why() == str(last)
    for node in model.tree_at(last.step).nodes:
        assert f"Node {node}, " in model.why(node=node)
    first = model._tree.history.first_step
    after = [event for event in model.events_ if event.step > first]
    assert model.diff(first, last.step).events == after


def test_rows_say_when_as_well_as_steps():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    first, last = model.events_[0], model.events_[-1]
    assert model.why(row=first.n_rows) == model.why(step=first.step)
    assert model.why(row=first.n_rows - 1).startswith("Nothing changed at row ")
    assert model.tree_at(row=first.n_rows - 1) == model.tree_at(0)
    assert model.tree_at(row=3000) == model.tree_at(last.step)
    assert model.diff(row=(0, 3000)).events == model.events_
    assert not model.diff(row=(last.n_rows, 3000))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model.tree_at(), "give either a step or row="),
        (lambda model: model.tree_at(1, row=5), "got step 1 and row 5"),
        (
            lambda model: model.tree_at(row=51),
            r"row must be a whole number from 0 .* to 50, got 51",
        ),
        (lambda model: model.why(row=1.5), "row must be a whole number"),
        (lambda model: model.diff(row=(40, 10)), "the first row must not be later"),
        (lambda model: model.diff(row=(1, 2, 3)), "row must be two rows"),
        (lambda model: model.diff(row=1000), r"row must be two rows, such as row=\(1000, 2000\)"),
        (lambda model: model.diff(row=("1", 2)), "row must be a whole number"),
    ],
)
def test_a_row_that_is_none_is_refused(call, words):
    model = DynamicModelTreeClassifier()
    for i in range(50):
        model.learn_one({"a": float(i)}, i % 2)
    with pytest.raises(ValueError, match=words):
        call(model)


# ---------------------------------------------------------------------- moved thresholds
@pytest.fixture(scope="module")
def moved():
    """The threshold of the root moves in one step, and back two steps later."""
    model = learn_deep()
    return model, *shift_and_back(model)


def test_a_moved_threshold_is_told_by_its_step_and_its_node(moved):
    model, there, back = moved
    for event in (there, back):
        assert model.why(step=event.step) == model.why(step=event.step, node=0) == str(event)
    first = model.events_[0]
    assert model.why(node=0).splitlines()[:2] == [
        f"Node 0, all rows, is split by {back.condition} since row {back.n_rows:,}, and by "
        f"{first.condition.feature} since row {first.n_rows:,}.",
        str(back),
    ]
    assert str(back) not in model.why(node=first.left)


def test_a_threshold_of_an_earlier_split_is_not_told_of_the_present_one():
    model = learn_deep()
    log, first = model._tree.history, model.events_[0]
    times = [{"step": step, "n_rows": 200 * step} for step in (26, 27, 28)]
    add_shift(log, 0.5, **times[0])
    common = {"node": 0, "path": (), **FIGURES}
    log.add(Prune(**times[1], **common, old_condition=first.condition, removed=log.below(0)))
    log.add(Split(**times[2], **common, condition=first.condition, left=1, right=2))
    answer = model.why(node=0).splitlines()[0]
    assert answer == f"Node 0, all rows, is split by {first.condition} since row 5,600."


def test_a_difference_names_moved_leaves_with_both_paths(moved):
    model, there, back = moved
    between = model.diff(there.step - 1, there.step)
    assert (between.added, between.removed, between.kept) == ([], [], [])
    before, after = model.tree_at(there.step - 1), model.tree_at(there.step)
    assert between.moved == [(before.path(leaf), after.path(leaf)) for leaf in after.leaves()]
    text = str(between)
    count = f"{model.n_leaves_} leaves"
    assert text.startswith(f"1 shift; from {count} to {count}.\nMoved: ")
    for old, new in between.moved:
        assert old != new
        assert f"Moved: rows with {join_path(new)}, before: {join_path(old)}\n" in text
    whole = model.diff(there.step - 1, back.step)
    assert whole.events == [there, back]
    assert (whole.added, whole.removed, whole.moved) == ([], [], [])
    assert len(whole.kept) == model.n_leaves_


def test_a_moved_leaf_that_was_removed_is_gone():
    """A node of the same id that came later is another, and new."""
    model = learn_deep()
    log, first = model._tree.history, model.events_[0]
    add_shift(log, 0.5, step=26, n_rows=5200)
    common = {"node": 0, "path": (), **FIGURES, "n_rows": 5400}
    log.add(Prune(step=27, **common, old_condition=first.condition, removed=log.below(0)))
    condition = Condition("x2", "<=", 0.0)
    log.add(Split(step=28, **common, condition=condition, left=3, right=4))
    between = model.diff(25, 28)
    assert between.added == [(condition,), (condition.negated(),)]
    assert len(between.removed) == model.n_leaves_
    assert (between.kept, between.moved) == ([], [])


def test_a_leaf_whose_rows_stay_is_kept_when_a_threshold_moves():
    """Below age <= 60, it is of no matter to the leaf with age <= 40 that 60 was 70."""
    model = learn_deep()
    log = model._tree.history = history_module.History(500)
    for step, node, value in ((1, 0, 70.0), (2, 1, 40.0)):
        test = Condition("age", "<=", value, digits=6)
        where = {"step": step, "n_rows": step, "node": node, "path": log.now.path(node)}
        log.add(Split(**where, **FIGURES, condition=test, left=2 * step - 1, right=2 * step))
    add_shift(log, 60.0, step=3, n_rows=3)
    between = model.diff(2, 3)
    assert [join_path(path) for path in between.kept] == ["age <= 40"]
    assert [tuple(map(join_path, pair)) for pair in between.moved] == [
        ("40 < age <= 70", "40 < age <= 60"),
        ("age > 70", "age > 60"),
    ]
    assert (between.added, between.removed) == ([], [])
    assert "Moved: rows with age > 60, before: age > 70\n" in str(between)


def test_the_frame_has_the_new_memory(moved):
    model, last, _ = moved
    event = MemoryChange(step=1, n_rows=1, node=0, path=(), memory=667.0, **FIGURES)
    assert changes.to_frame([last, event], "polars")["memory"].to_list() == [None, 667.0]
    assert model.history()["memory"].isna().all()


def test_the_frame_has_both_thresholds(moved):
    model, *events = moved
    rows = model.history().to_dict("records")[-2:]
    for row, event in zip(rows, events, strict=True):
        assert row["kind"] == "shift"
        assert (row["condition"], row["old_condition"]) == (
            str(event.condition),
            str(event.old_condition),
        )
        assert row["n_removed"] == 0
        assert row["removed"] == ""
        told = tell_event(event)
        assert {name: told[name] for name in ("kind", "condition", "old_condition", "why")} == {
            name: row[name] for name in ("kind", "condition", "old_condition", "why")
        }


def test_nodes_outlive_a_moved_threshold(moved):
    """Their births, their samples and the race at the node go on."""
    model, there, back = moved
    log = model._tree.history
    births = changes.births_at(log, there.step - 1)
    assert changes.births_at(log, there.step) == changes.births_at(log, back.step) == births
    then, now = (outline(model, step=step) for step in (there.step, back.step))
    assert then[0].condition == there.condition
    assert now[0].condition == back.condition
    assert all(own.effects for own in then.values() if own.condition is None)
    race = gain_race(model, 0)
    assert race.events[-2:] == [there, back]
    assert there.condition not in race.gains  # it was no candidate for another split
