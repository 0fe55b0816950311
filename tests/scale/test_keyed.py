"""One model per key: the same bits however rows come, wherever the models are."""

import copy
import enum
import itertools
import json
import pickle
import random
import subprocess
import sys
import threading
from contextlib import nullcontext
from datetime import date
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas
import pytest
import scipy.sparse

import driftree
from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor, ModelFileError
from driftree.learn.storage import models
from driftree.scale import KeyedModels
from interrupting import AtLine
from key_rows import KEYS, draw_rows, learn_until_killed, learnt, make, to_columns

SCRIPT = Path(__file__).parents[1] / "support" / "key_rows.py"
SCALE = str(Path(driftree.__file__).parent / "scale")


def one_by_one(rows, labels, **options):
    keyed = KeyedModels(make, "key", **options)
    for x, y in zip(rows, labels, strict=True):
        keyed.learn_one(x, y)
    return keyed


# ---------------------------------------------------------------------- the same bits
@pytest.mark.parametrize("size", [7, 250, 600])
@pytest.mark.parametrize("memory", [0, 2**28])
def test_batches_give_the_models_of_single_rows(size, memory):
    rows, labels = draw_rows(600)
    keyed = KeyedModels(make, "key", memory=memory)
    for start in range(0, 600, size):
        part = slice(start, start + size)
        keyed.learn_many(to_columns(rows[part]), labels[part])
    assert learnt(keyed) == learnt(one_by_one(rows, labels))
    assert keyed.n_rows_seen_ == 600
    assert len(keyed) == len(KEYS)


@pytest.mark.parametrize("memory", [0, 60_000])
def test_models_come_back_from_disk_bit_for_bit(memory):
    rows, labels = draw_rows(300)
    spilled, kept = one_by_one(rows, labels, memory=memory), one_by_one(rows, labels)
    assert spilled.summary().n_in_memory < 6 < kept.summary().n_in_memory
    assert spilled.summary().memory < max(memory, 40_000)
    assert learnt(spilled) == learnt(kept)
    assert spilled.predict(to_columns(rows)).tolist() == kept.predict(to_columns(rows)).tolist()


def test_a_key_learns_its_own_rows_only():
    rows, labels = draw_rows(600)
    keyed = one_by_one(rows, labels)
    alone = make()
    for x, y in zip(rows, labels, strict=True):
        if x["key"] == "k3":
            alone.learn_one({name: x[name] for name in ("a", "b", "kind")}, y)
    ours = keyed["k3"]
    assert ours.n_rows_seen_ == alone.n_rows_seen_ == keyed.record("k3").n_rows
    x = {"a": 0.1, "b": 0.2, "kind": "u"}
    assert ours.predict_proba_one(x) == alone.predict_proba_one(x)


def test_killed_at_any_point_nothing_is_lost_and_nothing_learnt_twice(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "killed")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = json.loads(done.stdout.splitlines()[-1])
    assert left.pop("kills") >= 5
    assert left == learn_until_killed(tmp_path / "whole", 600, 100, None)


def test_what_was_committed_is_gone_on_with(tmp_path):
    rows, labels = draw_rows(600)
    with one_by_one(rows[:400], labels[:400], path=tmp_path) as keyed:
        keyed.commit()
        keyed.learn_many(to_columns(rows[400:]), labels[400:])  # lost: not committed
    with KeyedModels(make, "key", path=tmp_path, memory=0) as again:
        assert (again.position, again.n_rows_seen_) == (400, 400)
        again.learn_many(to_columns(rows[400:]), labels[400:])
        assert learnt(again) == learnt(one_by_one(rows, labels))


def test_a_commit_that_fails_changes_nothing(tmp_path):
    with KeyedModels(make, "key", path=tmp_path) as keyed:
        keyed.learn_one({"key": "a", "x": 1.0}, "yes")
        keyed.commit(10)
        for position in (-1, 7.5, "7", 2**63):
            with pytest.raises(ValueError, match="position must be a number of rows"):
                keyed.commit(position)
        keyed.learn_one({"key": "b", "x": 1.0}, "yes")
        keyed["b"].learn_one({"x": 1.0}, date(2026, 1, 1))  # past the check of labels
        with pytest.raises(TypeError, match="model of key 'b' cannot be kept on disk: a label is"):
            keyed.commit(20)
        assert keyed.position == 10
    with KeyedModels(make, "key", path=tmp_path) as again:
        assert (again.position, list(again)) == (10, ["a"])


@pytest.mark.parametrize("size", [1, 50])
def test_a_full_disk_loses_nothing_in_silence(tmp_path, size):
    rows, labels = draw_rows(600)

    def learn(keyed, start, end):
        for i in range(start, end, size):
            keyed.learn_many(to_columns(rows[i : i + size]), labels[i : i + size])

    with KeyedModels(make, "key", path=tmp_path, memory=60_000) as keyed:
        learn(keyed, 0, 200)
        keyed.commit()
        learn(keyed, 200, 300)
        limit = keyed._store._connection.execute
        ((n_pages,),) = limit("PRAGMA page_count")
        limit(f"PRAGMA max_page_count = {n_pages}")
        with pytest.raises(OSError, match="disk is full; what was committed before is intact"):
            learn(keyed, 300, 600)
        limit("PRAGMA max_page_count = 1000000")  # there is room again
        for call in (
            partial(keyed.learn_one, rows[0], labels[0]),
            partial(learn, keyed, 0, 50),
            partial(keyed.predict_one, rows[0]),
            keyed.summary,
            keyed.commit,
        ):
            with pytest.raises(OSError, match=r"since the last commit is lost: .* at `position`"):
                call()
        assert keyed.position == 200
    with KeyedModels(make, "key", path=tmp_path, memory=60_000) as again:
        assert (again.position, again.n_rows_seen_) == (200, 200)
        learn(again, 200, 600)
        assert learnt(again) == learnt(one_by_one(rows, labels))


def test_a_row_whose_call_failed_is_not_learnt_twice(monkeypatch):
    """It is learnt before models are evicted, and that fails."""
    keyed = KeyedModels(make, "key", memory=0)
    keyed.learn_one({"key": "a", "x": 1.0}, "yes")
    with monkeypatch.context() as patch:
        patch.setattr(keyed._store, "_write", Mock(side_effect=OSError("no disk")))
        with pytest.raises(OSError, match="no disk"):
            keyed.learn_one({"key": "b", "x": 1.0}, "yes")
    with pytest.raises(OSError, match=r"what was learnt is lost: start again, with path=\.\.\."):
        keyed.learn_one({"key": "b", "x": 1.0}, "yes")


@pytest.mark.parametrize("which", [0, 3])
def test_a_batch_is_not_left_half_learnt(monkeypatch, which):
    """Each key's model learns its rows before the parent does."""
    rows, labels = draw_rows(40)
    keyed = one_by_one(rows, labels)
    bad = [*dict.fromkeys(row["key"] for row in rows)][which]
    get = keyed._store.get

    def fail(key):
        if key == bad:
            raise OSError("no disk")
        return get(key)

    with monkeypatch.context() as patch:
        patch.setattr(keyed._store, "get", fail)
        with pytest.raises(OSError, match="no disk"):
            keyed.learn_many(to_columns(rows), labels)
    if which:
        with pytest.raises(OSError, match="what was learnt is lost"):
            keyed.predict_one(rows[0])
    else:  # nothing was learnt
        keyed.learn_many(to_columns(rows), labels)
        assert learnt(keyed) == learnt(one_by_one(rows * 2, labels * 2))


def after_rows(rows, labels):
    """A model after each of its rows, byte for byte."""
    model = make()
    states = [models.to_bytes(model)]
    for x, y in zip(rows, labels, strict=True):
        model.learn_one({name: value for name, value in x.items() if name != "key"}, y)
        states.append(models.to_bytes(model))
    return states


@pytest.mark.parametrize("memory", [0, 2**28])
def test_ctrl_c_leaves_each_row_whole_and_the_folder_usable(tmp_path, memory):
    """No model has half a row, and nothing that a model has learnt is lost later."""
    rows, labels = draw_rows(60, n_keys=3)
    first, rest = (to_columns(rows[:40]), labels[:40]), (to_columns(rows[40:]), labels[40:])
    places = {key: [i for i, x in enumerate(rows) if x["key"] == key] for key in KEYS[:3]}
    states = {
        key: after_rows([rows[i] for i in own], [labels[i] for i in own])
        for key, own in places.items()
    }
    for n in itertools.count(1, 17):
        options = {"path": tmp_path / str(n), "memory": memory}
        with KeyedModels(make, "key", **options) as keyed:
            keyed.learn_many(*first)
            keyed.commit()
            with AtLine(n, SCALE) as lines:
                keyed.learn_many(*rest)
                keyed.commit()
            held = {key: models.to_bytes(kept.model) for key, kept in keyed._store.entries.items()}
            keyed.commit()
            for key in places:
                assert models.to_bytes(keyed[key]) in states[key]
        with KeyedModels(make, "key", **options) as again:
            for key in places:
                assert models.to_bytes(again[key]) == held.get(key, models.to_bytes(again[key]))
            again.learn_many(*rest)
            again.commit()
        if lines.count < n:
            break
    assert n > 300


def test_threads_lose_nothing():
    rows, labels = draw_rows(1200, n_keys=4)
    keyed = KeyedModels(make, "key", parent=False, memory=50_000)

    def learn(key):
        for x, y in zip(rows, labels, strict=True):
            if x["key"] == key:
                keyed.predict_one(x)
                keyed.learn_one(x, y)

    threads = [threading.Thread(target=learn, args=[key]) for key in KEYS[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learnt(keyed) == learnt(one_by_one(rows, labels, parent=False))


# ---------------------------------------------------------------------- parent and keys
def opposite_keys(n_rows, seed=1):
    """Key "odd" has the opposite rule of nine others."""
    draw = random.Random(seed)
    for _ in range(n_rows):
        key, a = draw.choice(["odd", *"123456789"]), draw.gauss(0, 1)
        yield {"key": key, "a": a}, (a > 0) != (key == "odd")


def test_the_parent_predicts_until_the_own_model_is_better():
    keyed = KeyedModels(make, "key")
    for x, y in opposite_keys(1000):
        keyed.learn_one(x, y)
    assert not keyed.record("odd").is_cold
    assert keyed.record("odd").own_loss < keyed.record("odd").parent_loss
    assert keyed.predict_one({"key": "never seen", "a": 2.0}) is True
    assert keyed.predict_one({"key": "odd", "a": 2.0}) is False
    keyed.learn_one({"key": "cold", "a": 2.0}, False)
    assert keyed.record("cold").is_cold
    proba = keyed.predict_proba_one({"key": "cold", "a": 2.0})
    assert proba == keyed.parent.predict_proba_one({"a": 2.0})
    assert keyed.explain_one({"key": "odd", "a": 2.0}).prediction is False
    assert "never seen" not in keyed


def test_numbers_have_keys_too():
    draw = random.Random(1)
    keyed = KeyedModels(DynamicModelTreeRegressor, "shop")
    for _ in range(800):
        shop, day = draw.choice(["a", "b", "c", "d"]), draw.uniform(0, 7)
        keyed.learn_one({"shop": shop, "day": day}, (10 if shop == "d" else 2) * day)
    assert not keyed.parent.follow_target
    assert keyed["d"].follow_target is None
    assert not keyed.record("d").is_cold
    assert keyed.predict_one({"shop": "d", "day": 3.0}) == pytest.approx(30, abs=3)


def test_a_key_that_drifts_is_named():
    draw = random.Random(1)
    keyed = KeyedModels(make, "key")
    for row in range(6000):
        key, a, b = draw.choice("abcdef"), draw.gauss(0, 1), draw.gauss(0, 1)
        changed = key == "c" and row >= 5400
        noise = draw.random() < 0.1
        keyed.learn_one({"key": key, "a": a, "b": b}, (a + b > 0) != (changed != noise))
    summary = keyed.summary()
    assert [record.key for record in summary.drifting] == ["c"]
    assert summary.worst[0].key == "c"
    assert summary.n_drifting == 1
    (drift,) = keyed.drifts("c")
    assert 900 < drift.begin < 970
    assert drift.end is None
    assert all(not keyed.drifts(key) for key in "abdef")
    assert "drifts since row" in str(summary)


def test_changed_keys_have_events():
    draw = random.Random(1)
    keyed = KeyedModels(make, "key", parent=False)
    for _ in range(3000):
        key, a, b = draw.choice("ab"), draw.uniform(-1, 1), draw.uniform(-1, 1)
        keyed.learn_one({"key": key, "a": a, "b": b}, (a > 0) != (b > 0) if key == "a" else a > 0)
    events = keyed.events("a")
    assert events
    assert keyed.record("a").changed_at == events[-1].n_rows
    assert [record.key for record in keyed.summary().changed] == [
        key for key in "ab" if keyed.record(key).n_rows - keyed.record(key).changed_at <= 100
    ]


# ---------------------------------------------------------------------- what may come in
def test_arrays_and_frames_give_the_same():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 3, 300), rng.normal(size=(300, 2))])
    y = X[:, 1] > X[:, 0] - 1
    arrays = KeyedModels(make, key=0).partial_fit(X, y)
    frame = pandas.DataFrame(X, columns=["x0", "x1", "x2"]).astype({"x0": int})
    frames = KeyedModels(make, key="x0")
    frames.learn_many(frame, pandas.Series(y))
    assert learnt(arrays) == learnt(frames)
    assert sorted(arrays) == [0, 1, 2]
    answers = frames.predict_many(frame)
    assert isinstance(answers, pandas.Series)
    assert answers.tolist() == arrays.predict(X).tolist()


@pytest.mark.parametrize("of", [list, tuple])
def test_dicts_are_learnt_like_single_rows(of):
    draw = random.Random(1)
    words = [f"word {i}" for i in range(80)]
    texts = [dict.fromkeys(draw.sample(words, 5), 1) for _ in range(90)]
    rows = [{"key": draw.choice("ab"), **text} for text in texts]
    labels = ["word 3" in x or "word 4" in x for x in rows]
    keyed = KeyedModels(make, "key", memory=0)
    for part in (slice(40), slice(40, 90)):
        keyed.learn_many(of(rows[part]), labels[part])
    assert learnt(keyed) == learnt(one_by_one(rows, labels))
    assert keyed.predict_many(of(rows)).tolist() == [keyed.predict_one(x) for x in rows]


def test_missing_cells_of_pandas_are_absent():
    frame = pandas.DataFrame({"key": [1, 1, 2], "a": [1, None, 3], "b": ["u", None, "v"]})
    keyed, expected = KeyedModels(make, "key"), KeyedModels(make, "key")
    keyed.learn_many(frame.convert_dtypes(), ["yes", "no", "no"])
    expected.learn_many(frame, ["yes", "no", "no"])
    assert learnt(keyed) == learnt(expected)


@pytest.mark.parametrize(
    "labels",
    [[1, "no"], [("a", 1), ("a", 2)], [b"a", b"b"], [1.5, 2.0], [True, 2]],
    ids=["mixed", "tuples", "bytes", "floats", "booleans and numbers"],
)
def test_labels_are_those_of_single_rows(labels):
    rows = [{"key": key, "a": a} for _ in range(40) for key in "pq" for a in (0.0, 3.0)]
    given = [labels[x["a"] > 1] for x in rows]
    keyed = KeyedModels(make, "key")
    keyed.learn_many(to_columns(rows), given)
    assert learnt(keyed) == learnt(one_by_one(rows, given))
    answers = keyed.predict(to_columns(rows)).tolist()
    assert answers == [keyed.predict_one(x) for x in rows]
    assert {*answers} == {*labels}


@pytest.mark.parametrize("kind", [DynamicModelTreeClassifier, DynamicModelTreeRegressor])
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_without_a_target_nothing_is_learnt(kind, missing):
    keyed = KeyedModels(kind, "key")
    X = {"key": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}
    y = ["yes", missing, "no"] if kind is DynamicModelTreeClassifier else [1.0, missing, 2.0]
    with pytest.raises(ValueError, match=r"y contains NaN.* row 1 is"):
        keyed.learn_many(X, y)
    with pytest.raises(ValueError, match="y contains NaN"):
        keyed.learn_one({"key": "a", "x": 1.0}, missing)
    assert len(keyed) == keyed.n_rows_seen_ == 0
    assert keyed.parent._tree is None


@pytest.mark.parametrize(
    ("X", "y", "w", "error", "words"),
    [
        (scipy.sparse.eye_array(2).tocsr(), [0, 1], None, TypeError, "give a list of dicts"),
        (np.ones(2), [0, 1], None, ValueError, "two dimensions"),
        (np.ones((2, 2)), [0], None, ValueError, "X has 2 rows, but y has 1"),
        (np.ones((2, 2)), [0, 1], [1, 2, 3], ValueError, "one number per row, 2 in all"),
        (np.ones((2, 2)), [0, 1], ["a", "b"], TypeError, "must hold numbers"),
    ],
)
def test_other_batches_are_refused_as_a_whole(X, y, w, error, words):
    keyed = KeyedModels(make, 0)
    with pytest.raises(error, match=words):
        keyed.learn_many(X, y, w)
    assert keyed.parent._tree is None


def test_refused_rows_do_not_hold_up_the_others():
    rows, labels = draw_rows(50)
    columns = to_columns(rows)
    columns["a"][20] = float("inf")
    keyed = KeyedModels(make, "key")
    with pytest.raises(ValueError, match=r"1 of 50 rows were refused, .* row 20 \(key 'k"):
        keyed.learn_many(columns, labels)
    with pytest.raises(ValueError, match="infinity"):
        keyed.learn_one({"key": "only wrong", "a": float("inf")}, "yes")
    assert "only wrong" not in keyed
    del rows[20], labels[20]
    assert learnt(keyed) == learnt(one_by_one(rows, labels))


def rows_that_one_model_refuses():
    """A column is of text for the parent and of numbers for 'b'; of numbers for both; new."""
    rows = [
        {"key": "a", "x": "text", "z": 1.0},
        {"key": "b", "x": 1.0, "z": 1.0},
        {"key": "b", "x": "text", "z": 1.0},  # b refuses it
        {"key": "b", "x": 2.0, "z": 1.0},
        {"key": "c", "x": "text", "z": "text"},  # the parent refuses it
        {"key": "b", "x": "new", "z": 1.0, "new": 1.0},  # b refuses it, the parent has to read it
        {"key": "c", "x": 3.0, "z": 1.0},
    ]
    return rows, ["yes", "no", "yes", "no", "yes", "maybe", "no"], [2, 4, 5]


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("memory", [0, 2**28])
def test_a_row_that_one_model_refuses_is_learnt_by_none(by_row, memory):
    rows, labels, refused = rows_that_one_model_refuses()
    keyed = KeyedModels(make, "key", memory=memory)
    if by_row:
        for i, (x, y) in enumerate(zip(rows, labels, strict=True)):
            with pytest.raises(ValueError, match="numeric") if i in refused else nullcontext():
                keyed.learn_one(x, y)
    else:
        with pytest.raises(ValueError, match=r"3 of 7 rows .* row 2 .* row 4 .* row 5 "):
            keyed.learn_many(rows, labels)
    kept = [i for i in range(len(rows)) if i not in refused]
    others = one_by_one([rows[i] for i in kept], [labels[i] for i in kept])
    assert learnt(keyed) == learnt(others)
    assert keyed.n_rows_seen_ == keyed.parent.n_rows_seen_ == 4


class Kind(enum.Enum):
    GOOD = 1


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ({"a": 1.0}, date(2024, 12, 31)),
        ({"a": 1.0}, (1, date(2024, 12, 31))),
        ({"a": 1.0}, 2**5000),
        ({Kind.GOOD: 1.0}, "yes"),
        ({"level": Kind.GOOD}, "yes"),
    ],
    ids=repr,
)
def test_what_no_file_can_hold_is_refused_at_once(x, y):
    keyed = KeyedModels(partial(make, categorical=["level"]), "key", memory=0)
    words = "cannot be kept on disk .* make it text"
    for parent in (keyed.parent, None):
        keyed.parent = parent
        with pytest.raises(TypeError, match=words):
            keyed.learn_one({"key": "a", **x}, y)
        with pytest.raises(ValueError, match=f"1 of 2 rows were refused.*{words}"):
            keyed.learn_many(
                [{"key": "a", **x}, {"key": "a", "level": date(2024, 1, 1)}], [y, "no"]
            )
    for key in "abc":
        keyed.learn_one({"key": key, "level": "good"}, "yes")
    assert keyed.n_rows_seen_ == 5


@pytest.mark.parametrize(
    "key", [None, float("nan"), pandas.NA, 1.5, ("a",), True, 2**63, -(2**63) - 1, "\ud800"]
)
def test_wrong_keys_are_refused(key):
    keyed = KeyedModels(make, "key")
    with pytest.raises((TypeError, ValueError), match="key"):
        keyed.learn_one({"key": key, "a": 1.0}, "yes")
    with pytest.raises((TypeError, ValueError), match="key"):
        keyed.learn_many({"key": ["a", key], "a": [1.0, 2.0]}, ["yes", "no"])
    assert len(keyed) == 0
    assert keyed.parent._tree is None


@pytest.mark.parametrize("key", ["", "\0", "kü", "k" * 10**5, -(2**63), 2**63 - 1, b"", b"\xff"])
def test_any_other_key_comes_back_from_disk(key):
    keyed = KeyedModels(make, "key", memory=0)
    for x in ({"key": key, "a": 1.0}, {"key": "other", "a": 1.0}, {"key": key, "a": 2.0}):
        keyed.learn_one(x, "yes")
    assert key in keyed
    assert list(keyed) == [key, "other"]
    assert keyed[key].n_rows_seen_ == keyed.record(key).n_rows == 2


def test_unknown_keys_are_named():
    keyed = one_by_one(*draw_rows(100))
    with pytest.raises(KeyError, match="did you mean 'k1'"):
        keyed["K1"]


def test_only_own_learners_are_taken():
    with pytest.raises(TypeError, match="driftree's own learners"):
        KeyedModels(dict, "key")


def test_a_folder_is_for_one_process_and_one_kind(tmp_path):
    with KeyedModels(make, "key", path=tmp_path) as keyed:
        keyed.commit()
        with pytest.raises(BlockingIOError, match="in use by this process"):
            KeyedModels(make, "key", path=tmp_path)
    with pytest.raises(ValueError, match="key was 'key', is 'customer'"):
        KeyedModels(make, "customer", path=tmp_path)
    with pytest.raises(ValueError, match="with other settings: model was"):
        KeyedModels(DynamicModelTreeClassifier, "key", path=tmp_path)
    with pytest.raises(ValueError, match="closed"):
        keyed.learn_one({"key": "a", "x": 1.0}, "yes")


def test_what_is_closed_learns_nothing_and_says_so(tmp_path):
    rows, labels = draw_rows(20)
    with one_by_one(rows, labels, path=tmp_path) as keyed:
        keyed.commit()
    for call in (
        lambda: keyed.learn_one(rows[0], labels[0]),
        lambda: keyed.predict_one(rows[0]),
        lambda: keyed.record(rows[0]["key"]),
        keyed.summary,
        keyed.commit,
    ):
        with pytest.raises(ValueError, match="the models are closed"):
            call()


def test_copies_are_refused():
    for call in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match=r"commit\(\) them to a folder"):
            call(KeyedModels(make, "key"))


def test_a_damaged_file_is_an_error(tmp_path):
    (tmp_path / "models.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ModelFileError, match="not a database"):
        KeyedModels(make, "key", path=tmp_path)


def test_a_damaged_model_is_named(tmp_path):
    rows, labels = draw_rows(100)
    with one_by_one(rows, labels, path=tmp_path, memory=0) as keyed:
        keyed.commit()
        keyed._store._change("UPDATE models SET data = zeroblob(100)")
        keyed._store.commit({})
    with (
        KeyedModels(make, "key", path=tmp_path) as keyed,
        pytest.raises(ModelFileError, match="'k"),
    ):
        keyed.predict_one(rows[0])


def test_without_a_path_nothing_is_committed():
    keyed = KeyedModels(make, "key")
    folder = keyed._store.folder
    with pytest.raises(ValueError, match="commit needs a folder"):
        keyed.commit()
    keyed.close()
    assert not folder.exists()
