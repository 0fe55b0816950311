"""Text: names, levels and labels that no model file could hold are refused, and nothing changes."""

import copy
import functools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import driftree
from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.learn import history as history_module
from driftree.learn import memory
from driftree.learn.events import LinkChange
from driftree.learn.storage import container, manifest, models

FIGURES = dict.fromkeys(("gain", "threshold", "loss_before", "loss_after", "rows"), 1.0)
LEAST = 20_000  # bytes of text that the models here may learn
ALPHABETS = {"ascii": "x", "latin": "é", "astral": "\U0001f600", "control": "\0", "half": "\ud800"}
BROUGHT = [(face, what) for face in ("learn_one", "learn_many") for what in ("names", "levels")]
BROUGHT += [("partial_fit", "levels")]  # its features are the same in every call
BROUGHT += [(face, "labels") for face in ("learn_one", "learn_many", "partial_fit")]
KINDS = {
    "dmt": functools.partial(DynamicModelTreeClassifier, absent="missing"),
    "fimtdd": FIMTDDClassifier,
}


def to_bytes(model):
    return container.to_bytes(models.KIND, *models.pack(model))


def learn(model, face, row, label):
    if face == "learn_one":
        model.learn_one(row, label)
        return
    columns = {name: np.array([cell], dtype=object) for name, cell in row.items()}
    if face == "learn_many":
        model.learn_many(columns, [label])
    else:
        model.partial_fit(columns, [label], classes=["a", "b", label])


def written(model):
    """Return the bytes that names, levels and labels take in the model's file."""
    learnt = models.pack(model)[0]["learnt"]
    parts = [learnt[key] for key in ("names", "levels", "labels")]
    return sum(len(json.dumps(part, separators=(",", ":"))) for part in parts)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(memory, "MOST_TEXT", LEAST)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize(("face", "what"), BROUGHT)
@pytest.mark.parametrize("kind", KINDS)
def test_text_that_no_file_could_hold_is_refused_whatever_brings_it(kind, face, what, alphabet):
    model = KINDS[kind]()
    learn(model, face, {"car": "van"}, "a")
    for i in range(1000):
        text = f"{i} " + ALPHABETS[alphabet] * 900
        row = {"car": text if what == "levels" else "van"}
        if what == "names":
            row[text] = 1.0
        before = to_bytes(model)
        try:
            learn(model, face, row, text if what == "labels" else "a")
        except ValueError as error:
            assert "as text in a model file" in str(error)  # noqa: PT017
            break
    else:
        pytest.fail("nothing was refused")
    assert to_bytes(model) == before
    assert written(model) <= model._tree.encoder.known.n_text <= LEAST
    learn(model, face, {"car": "van"}, "a")  # what is known is still learnt


VALUES = st.recursive(
    st.text(max_size=9) | st.booleans() | st.integers() | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.dictionaries(VALUES, st.text(max_size=9)), max_size=5), labels=st.data())
def test_the_count_covers_what_is_written_and_survives_every_copy(tmp_path_factory, rows, labels):
    model = DynamicModelTreeClassifier(categorical=None)
    for row in rows:
        model.learn_one(row, labels.draw(VALUES))
    if model._tree is None:
        return
    count = model._tree.encoder.known.n_text
    assert written(model) <= count + 100  # brackets
    path = tmp_path_factory.mktemp("files") / "model.dmt"
    model.save(path)
    copies = [driftree.load(path), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    copies.append(model.clone(include_attributes=True))
    assert [one._tree.encoder.known.n_text for one in copies] == [count] * 4


def test_a_quarter_of_a_file_is_for_names_and_a_quarter_for_the_history():
    assert 4 * memory.MOST_TEXT <= manifest.MAX_LENGTH
    assert 4 * history_module.MAX_TEXT <= manifest.MAX_LENGTH


def learn_changes(name):
    """Return a model of a stream whose rule changes often."""
    rng, model = np.random.default_rng(1), DynamicModelTreeClassifier()
    for i in range(12):
        X = rng.uniform(-1, 1, size=(3000, 2))
        y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)) if i % 2 else X[:, 0] > 0.3
        model.learn_many({name: X[:, 0], "b": X[:, 1]}, y)
    return model


def test_long_names_shorten_the_log_but_not_the_tree(monkeypatch, tmp_path):
    whole = learn_changes("\U0001f600" * 900)
    events = whole.events_
    assert len(events) > 3
    sizes = [len(json.dumps(one)) for one in models.pack(whole)[0]["history"]["events"]]
    assert all(
        written <= history_module.text_of(event)
        for event, written in zip(events, sizes, strict=True)
    )
    monkeypatch.setattr(history_module, "MAX_TEXT", sum(sizes) // 2)
    short = learn_changes("\U0001f600" * 900)
    log = short._tree.history
    assert 0 < len(short.events_) < len(events)
    assert short.events_ == events[-len(short.events_) :]
    assert sum(map(history_module.text_of, short.events_)) <= history_module.MAX_TEXT
    assert short.tree_at(log.first_step) == whole.tree_at(log.first_step)
    assert log.now == whole._tree.history.now
    short.save(tmp_path / "model.dmt")
    again = driftree.load(tmp_path / "model.dmt")
    for history in (log, again._tree.history):
        history.add(
            LinkChange(step=10**6, n_rows=10**6, node=0, path=(), floor=(0.0, 0.0), **FIGURES)
        )
    assert again._tree.history == log  # which counts as one that was never saved
    assert again._tree.history._n_text == log._n_text
