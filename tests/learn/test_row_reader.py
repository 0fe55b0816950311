"""Rows as dicts: reading them in C++, which remembers the last row's keys, is reading by name."""

from types import MappingProxyType

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from quick import engine_of

NAMES = ["a", "b", "color", "c", 7, ("d", 1), "e", "f"]  # new ones come with the rows


def draw_key(rng, name):
    """The key, or one that is equal but another object, of a number also of another type."""
    if rng.random() < 0.5:
        return name
    copies = {str: lambda: (name + "_")[:-1], int: lambda: float(name), tuple: lambda: (*name,)}
    return copies[type(name)]()


def draw_row(rng, i, way):
    """Features in some order, some of them absent, None or NaN."""
    names = list(NAMES[: 3 + i // 60])
    if way == "any order":
        rng.shuffle(names)
    elif way == "turning":
        names = names[i % len(names) :] + names[: i % len(names)]
    elif way == "gaps":
        names = [name for name in names if rng.random() < 0.7]
    row = {}
    for name in names:
        value = rng.choice(["red", "green", "blue"][: 1 + i // 100]) if name == "color" else None
        value = float(rng.normal()) if value is None else str(value)
        missing = rng.random()
        row[draw_key(rng, name)] = (
            None if missing < 0.05 else float("nan") if missing < 0.1 else value
        )
    return row


@pytest.mark.filterwarnings("ignore:the rows hold no feature")
@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, FIMTDDClassifier])
@pytest.mark.parametrize("way", ["same order", "any order", "turning", "gaps"])
def test_the_order_and_identity_of_keys_do_not_matter(way, make):
    """A mapping that is no dict is read in Python, by name."""
    rng = np.random.default_rng(1)
    fast, slow = make(), make()
    for i in range(300):
        row = draw_row(rng, i, way)
        question = {"unknown": 1.0, **draw_row(rng, i, way), "stranger": "x"}
        label = bool(rng.random() < 0.5)
        fast.learn_one(row, label)
        slow.learn_one(MappingProxyType(row), label)
        assert fast.predict_proba_one(question) == slow.predict_proba_one(
            MappingProxyType(question)
        )
    arrays, others = engine_of(fast).arrays(), engine_of(slow).arrays()
    assert all(np.array_equal(arrays[k], others[k], equal_nan=True) for k in arrays)
    assert fast._tree.encoder.names == slow._tree.encoder.names


def test_a_key_that_is_gone_is_not_taken_for_the_next_at_its_place():
    """A new string mostly lies where the last one did; then its address is no proof."""
    fast, slow = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    for model, kind in ((fast, dict), (slow, MappingProxyType)):
        for i in range(200):
            half = "xyz"[i % 3]
            model.learn_one(kind({half + half: float(i)}), i % 2)
    assert np.array_equal(engine_of(fast).weights(0), engine_of(slow).weights(0))


@pytest.mark.filterwarnings("ignore:the rows hold no feature")
@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, FIMTDDClassifier])
def test_rows_that_are_taken_are_learnt_without_python(make):
    rng = np.random.default_rng(1)
    model = make()
    model.learn_one({"a": 1.0}, True)
    face = model._tree.encoder.row_face
    found = set()
    for i in range(300):
        row, label = draw_row(rng, i, "gaps"), bool(rng.random() < 0.5)
        before = {name: array.tolist() for name, array in engine_of(model).arrays().items()}
        is_taken = face.takes(row, label)
        assert repr(before) == repr({k: v.tolist() for k, v in engine_of(model).arrays().items()})
        assert is_taken == (face.learn(row, label) is not NotImplemented)
        if not is_taken:
            model.learn_one(row, label)
        found.add(is_taken)
    assert found == {True, False}
    for row, label in (
        ({"a": "text"}, True),
        ({"a": np.inf}, True),
        ({"a": 1.0}, "new"),
        (7, True),
    ):
        assert not face.takes(row, label)


def test_new_words_of_sparse_rows_are_taken_while_there_is_room():
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_one({"a": 1.0}, True)
    face = model._tree.encoder.row_face
    assert face.takes({"b": 1.0, "c": "text"}, True)
    assert not face.takes({"b": np.inf}, True)
    assert not face.takes({"b": 1.0}, False)  # a new label
    assert face.n_sparse == 1
