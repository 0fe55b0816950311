"""Why the tree changed: in words, as a frame, and between any two steps."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier
from driftree.explain import changes
from driftree.learn.events import Split


@pytest.fixture(scope="module")
def model():
    """A rule that needs a split on age, and later one on income."""
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier()
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
    assert answer[2].startswith("The best other split at present, ")
    assert answer[2].endswith(" required.")


def test_a_leaf_that_a_split_made_gives_that_split():
    X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    [event] = model.events_
    assert isinstance(event, Split)
    for leaf in (event.left, event.right):
        assert str(event) in model.why(node=leaf)
        assert "is a leaf since row 1,000" in model.why(node=leaf)


def test_a_full_tree_says_that_it_may_not_grow():
    X = np.random.default_rng(1).uniform(-1, 1, size=(1000, 2))
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, X[:, 0] > 0)
    assert "max_nodes or max_depth" in model.why(node=0)
    assert model.why() == "Nothing changed so far: no candidate had gained enough."


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"step": 9000}, "step must be from 0 .* to 8000, got 9000"),
        ({"step": -1}, "got -1"),
        ({"node": 99}, "there is no node 99 at present; there are 0"),
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


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_the_frame_is_of_the_library_in_use(model, library, monkeypatch):
    monkeypatch.setattr(changes, "FRAMES", (library,))
    frame = model.history()
    assert type(frame).__module__.split(".")[0] in (library, "polars", "pyarrow")
    assert len(frame) == len(model.events_)
    empty = DynamicModelTreeClassifier().partial_fit([[1.0], [2.0]], [0, 1]).history()
    names = empty.columns if isinstance(empty, pl.DataFrame) else empty.column_names
    assert len(empty) == 0
    assert list(names)[:3] == ["step", "n_rows", "kind"]


def test_without_a_frame_library_the_error_says_what_to_do(model, monkeypatch):
    monkeypatch.setattr(changes, "FRAMES", ("no_such_frames",))
    assert "no_such_frames" not in sys.modules
    with pytest.raises(ImportError, match="pip install pandas"):
        model.history()


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
