"""Models in files: what comes back is the model, bit by bit; or an error says what is wrong."""

import dataclasses
import gc
import importlib.util
import json
import math
import sys
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors

import driftree
import stored
from driftree import DynamicModelTreeClassifier, FIMTDDClassifier, ModelFileError
from driftree.learn._kernels import StoredArrays, cut_quoted, pack_arrays, unquote
from driftree.learn.storage import container, models
from shifts import learn_deep, shift_and_back

GOLDEN = Path(__file__).parent.parent / "golden"
every_model = pytest.mark.parametrize("name", stored.MAKERS)


def reload(model, path):
    model.save(path)
    return driftree.load(path)


@pytest.mark.parametrize("make", [DynamicModelTreeClassifier.paper, FIMTDDClassifier])
def test_categories_may_be_negative_numbers(make, tmp_path):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=6000), rng.integers(-3, 3, 6000)])
    y = X[:, 1] == -2
    model = make(categorical=[1])
    for start in range(0, len(X), 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100], classes=[False, True])
    again = reload(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


# ---------------------------------------------------------------------- one model per customer
def small_model():
    model = DynamicModelTreeClassifier()
    for x in np.random.default_rng(1).normal(size=(50, 3)).tolist():
        model.learn_one(dict(zip(("age", "income", "debt"), x, strict=True)), x[0] > x[1])
    return model


def test_a_small_model_holds_and_saves_little(tmp_path):
    model, path = small_model(), tmp_path / "model.dmt"
    loaded = reload(model, path)
    assert path.stat().st_size <= 32_000
    assert model.memory_usage() <= 24_000
    assert loaded.memory_usage() <= 24_000


def test_to_load_a_small_model_takes_few_calls(tmp_path):
    """A few hundred, of which each takes a fraction of a microsecond: no loop over all arrays."""
    path, calls = tmp_path / "model.dmt", []
    small_model().save(path)
    driftree.load(path)  # what others of its kind share is read now
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        driftree.load(path)
    finally:
        sys.setprofile(None)
    assert 0 < sum(event in ("call", "c_call") for event in calls) <= 250


@pytest.mark.parametrize("kind", [DynamicModelTreeClassifier, FIMTDDClassifier])
def test_a_model_that_nobody_needs_is_gone_at_once(kind, tmp_path):
    model = kind()
    for x in range(300):
        model.learn_one({"x": x % 7}, x % 2)
    loaded = reload(model, tmp_path / "model.dmt")
    trees = [weakref.ref(model._tree), weakref.ref(loaded._tree)]
    gc.disable()
    try:
        del model, loaded
        assert [tree() for tree in trees] == [None, None]
    finally:
        gc.enable()


def test_models_of_one_file_share_words_and_nothing_that_changes(tmp_path):
    path = tmp_path / "model.dmt"
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [0, 1]})
    DynamicModelTreeClassifier(categorical=["b"]).fit(X, ["no", "yes"]).save(path)
    one, other = driftree.load(path), driftree.load(path)
    before = stored.to_bytes(other)
    assert one._tree.encoder.known is other._tree.encoder.known
    one.categorical.append("c")
    one.feature_names_in_[0] = "z"
    one.set_params(max_nodes=3)
    one.learn_one({"a": 1.0, "b": "new", "more": "x"}, "maybe")
    with pytest.raises(ValueError, match="read-only"):
        driftree.load(path).classes_[0] = "another"
    for model in (other, driftree.load(path)):
        assert stored.to_bytes(model) == before == path.read_bytes()


def test_the_same_words_with_other_numbers_are_another_model(tmp_path):
    models_of = []
    for n_rows in (30, 31, 30):
        model = DynamicModelTreeClassifier()
        for i in range(n_rows):
            model.learn_one({"a": float(i % 7)}, i % 3 > 0)
        models_of.append((reload(model, tmp_path / "model.dmt"), model))
    for loaded, model in models_of:
        assert stored.to_bytes(loaded) == stored.to_bytes(model)


@pytest.mark.parametrize("value", [20000, 20000.0])
def test_numbers_of_parameters_keep_their_types(value, tmp_path):
    for given in (20000.0, 20000, value):  # read before, too
        model = DynamicModelTreeClassifier(evidence_window=given)
        model.learn_one({"a": 1.0}, "yes")
        loaded = reload(model, tmp_path / "model.dmt")
        assert type(loaded.evidence_window) is type(given)
        assert type(loaded._tree.parameters.evidence_window) is type(given)


QUOTED = ['{"a":1}', "", "\\", '"', '\\\\"', '}"}', "plain"]


@pytest.mark.parametrize("text", QUOTED)
def test_quoted_text_is_read_as_json_reads_it(text):
    for behind in (b"", b"}}  ", b'"'):
        data = b"ab" + json.dumps(text).encode("ascii") + behind
        assert unquote(data, 2) == (text, len(data) - len(behind))


@pytest.mark.parametrize(
    "data",
    [b"", b'"', b'"abc', b'"\\', b'"\\n"', b'"\\u0041"', b'"\n"', b'"\xfc"', b'"\x7f"', b'"\0"'],
)
def test_what_json_would_read_otherwise_is_left_to_it(data):
    assert unquote(data, 0) is None
    assert unquote(data, 100) is None


def test_quoted_text_is_cut_before_a_part():
    data = rb"ab\"c\",\"d\":{\"e\":1}}" + b'"rest'
    assert cut_quoted(data, 1, rb",\"d\":", 9, 99) == (rb"b\"c\"", '"d":{"e":1}}', len(data) - 4)


@pytest.mark.parametrize(
    ("data", "most_before", "most_behind"),
    [
        (rb"abc,\"d\":1", 9, 99),  # does not end
        (rb"abc,\"d\":\n" + b'"', 9, 99),
        (rb"abc,\"e\":1" + b'"', 9, 99),
        (rb"abc,\"d\":1" + b'"', 2, 99),  # too much before
        (rb"abc,\"d\":1" + b'"', 9, 7),  # and behind
        (b"", 9, 99),
    ],
)
def test_what_cannot_be_cut_is_left_to_json(data, most_before, most_behind):
    assert cut_quoted(data, 0, rb",\"d\":", most_before, most_behind) is None
    assert cut_quoted(data, 100, rb",\"d\":", most_before, most_behind) is None


def test_a_name_may_look_like_the_end_of_what_models_share(tmp_path):
    model = DynamicModelTreeClassifier()
    model.learn_one({',"history":': 1.0, ',\\"history\\":': 2.0}, '},"history":{}')
    names = list(model._tree.encoder.names)
    assert list(reload(model, tmp_path / "model.dmt")._tree.encoder.names) == names


# ---------------------------------------------------------------------- arrays in pickles
PACKED = {"a": np.arange(3.0), "b": np.arange(5, dtype=np.int32), "c": np.empty(0, dtype=np.uint8)}


def test_packed_arrays_come_back():
    found = StoredArrays.unpack(pack_arrays(PACKED))
    assert found.names() == sorted(PACKED)
    for name, array in PACKED.items():
        assert found[name].tolist() == array.tolist()
        assert found[name].dtype == array.dtype
    assert len(StoredArrays.unpack(pack_arrays({}))) == 0


def test_bytes_that_are_no_packed_arrays_are_refused():
    packed = pack_arrays(PACKED)
    for wrong in (*(packed[:n] for n in range(len(packed))), packed + b"x", b"x" + packed[1:]):
        with pytest.raises(ValueError, match="no packed arrays"):
            StoredArrays.unpack(wrong)
    for place in range(8, 64, 4):  # numbers of arrays, lengths, types, lengths of names
        with pytest.raises(ValueError, match="no packed arrays"):
            StoredArrays.unpack(packed[:place] + b"\xff\xff\xff\x7f" + packed[place + 4 :])


def test_only_rows_of_plain_numbers_are_packed():
    for array in (np.ones((2, 2)), np.ones(2, dtype=complex), np.ones(6)[::2], "text"):
        with pytest.raises(TypeError, match="cannot be packed"):
            pack_arrays({"a": array})


# ---------------------------------------------------------------------- files as we write them
ARRAYS = {"a": np.arange(3.0), "b": np.arange(5, dtype=np.int32), "c": np.ones(3, dtype=np.uint8)}


def split(data):
    manifest, rest = container._read_manifest(data, len(data), "driftree model")
    return StoredArrays.read(data, rest.start, rest.stop, manifest.short, manifest.empty)


def exchange(old, new):
    """Return a change of a header, and of how long it says it is."""

    def change(data):
        assert old in data
        data = data.replace(old, new)
        length = int.from_bytes(data[:8], "little") + len(new) - len(old)
        return length.to_bytes(8, "little") + data[8:]

    return change


def test_files_are_split_as_the_library_splits_them():
    data = container.to_bytes("driftree model", {}, ARRAYS)
    found = split(data)
    assert found.names() == sorted(ARRAYS)
    for name, tensor in safetensors.deserialize(data):
        assert found[name].tobytes() == tensor["data"]
        assert found[name].tolist() == ARRAYS[name].tolist()
        assert found[name].dtype == ARRAYS[name].dtype
        assert found[name].flags.aligned


@pytest.mark.parametrize(
    "change",
    [
        exchange(b'"a":{', b'"b":{'),  # twice
        exchange(b'"a":{', b'"a" :{'),
        exchange(b'"a":{', b'"A":{'),
        exchange(b'"a":{', b'"__metadata__":{'),
        exchange(b'},"a":{', b',"more":"x"},"a":{'),
        exchange(b'"F64","shape":[3]', b'"F64","shape":[1,3]'),
        exchange(b'"F64","shape":[3]', b'"F64","shape":[-3]'),
        exchange(b'"F64","shape":[3]', b'"F64","shape":[03]'),
        exchange(b'"F64","shape":[3]', b'"F64","shape":[4]'),
        exchange(b'"F64","shape":[3]', b'"F16","shape":[3]'),
        exchange(b'"F64","shape":[3]', b'"F64","more":0,"shape":[3]'),
        exchange(b"[24,44]", b"[20,40]"),
        exchange(b"[44,47]", b"[45,48]"),
        exchange(b"[44,47]}}", b"[44,47]}} "),  # out of line
        exchange(b"[44,47]}}", b"[44,47]},}"),
        lambda data: data + b"x",
        lambda data: data[:-1],
    ],
)
def test_what_is_unusual_is_left_to_the_library(change):
    assert split(change(container.to_bytes("driftree model", {}, ARRAYS))) is None


# ---------------------------------------------------------------------- going on
@every_model
@pytest.mark.parametrize("mode", stored.MODES)
@pytest.mark.parametrize(
    ("stop", "n_rows", "n_labels"),
    [(1, 300, 2), (37, 300, 2), (333, 600, 3), (703, 300, 2), (1630, 10_000, 2), (3260, 600, 3)],
)
def test_a_loaded_model_goes_on_as_one_that_was_never_saved(
    name, mode, stop, n_rows, n_labels, tmp_path
):
    """In mid-trial, with rows that wait, with grids to come, before and after every change."""
    learn = stored.MODES[mode]
    alone, saved = stored.MAKERS[name](), stored.MAKERS[name]()
    for model in (alone, saved):
        learn(model, *stored.draw(stop))
    loaded = reload(saved, tmp_path / "model.dmt")
    assert stored.to_bytes(loaded) == (tmp_path / "model.dmt").read_bytes()
    rows = stored.draw(n_rows, start=stop, n_labels=n_labels)
    for model in (alone, saved, loaded):
        learn(model, *rows)
    for model in (saved, loaded):
        assert stored.to_bytes(model) == stored.to_bytes(alone)
        assert repr(getattr(model, "events_", None)) == repr(getattr(alone, "events_", None))
        columns, _ = stored.draw(50, start=20_000)
        assert model.predict_proba_many(columns).keys() == alone.predict_proba_many(columns).keys()
        for own, other in zip(
            model.predict_proba_many(columns).values(),
            alone.predict_proba_many(columns).values(),
            strict=True,
        ):
            np.testing.assert_array_equal(own, other)
    if stop > 1000 and name != "FIMT-DD":
        wanted = {"split", "replace"} if name == "paper" else {"split", "shift"}
        assert {event.kind for event in alone.events_} >= wanted


def test_saving_changes_nothing_between_any_two_rows(tmp_path):
    """Rows that wait in the paper's setting are settled by a save; nobody can tell."""
    columns, y = stored.draw(300)
    for name in stored.MAKERS:
        often, never = stored.MAKERS[name](), stored.MAKERS[name]()
        for i in range(300):
            row = {key: column[i] for key, column in columns.items()}
            often.learn_one(row, y[i])
            never.learn_one(row, y[i])
            if i % 7 == 0:
                often = stored.from_bytes(stored.to_bytes(often))
        assert stored.to_bytes(often) == stored.to_bytes(never)


def test_a_history_of_all_kinds_and_folded_events_comes_back(monkeypatch):
    monkeypatch.setattr("driftree.learn.history.MAX_EVENTS", 4)
    monkeypatch.setattr("driftree.learn.history.MAX_SAMPLES", 12)
    model = stored.MAKERS["measured"](max_bends=0)
    stored.learn_batches(model, *stored.draw(6000, seed=2))  # ends with a noise floor,
    stored.learn_batches(model, *stored.draw(200, start=6000, n_labels=3, seed=2))  # until here
    history = model._tree.history
    assert history.first_step > 0
    assert len(history.samples) > 5
    assert any(math.isnan(event.gain) for event in history.events)  # a third label
    loaded = stored.from_bytes(stored.to_bytes(model))._tree.history
    assert loaded == history
    assert vars(loaded).keys() == vars(history).keys()
    for key in ("_n_bytes", "_n_nodes", "_distance", "next_row", "first_row"):
        assert getattr(loaded, key) == getattr(history, key)


def moved():
    """A file of a model whose log says that the root's threshold moved."""
    model = learn_deep()
    shift_and_back(model)
    return model, container.from_bytes(stored.to_bytes(model), models.KIND)


def test_a_moved_threshold_comes_back():
    model, (contents, arrays) = moved()
    assert [event["kind"] for event in contents["history"]["events"][-2:]] == ["shift", "shift"]
    loaded = stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))
    assert loaded._tree.history == model._tree.history
    assert loaded.events_ == model.events_
    for event in model.events_:
        assert loaded.tree_at(event.step) == model.tree_at(event.step)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node": 3}, r"event \d+ changes a node that does not exist"),  # a leaf
        ({"node": 99}, r"event \d+ changes a node that does not exist"),
        ({"condition": {"feature": "x9"}}, r"event \d+ must move a threshold"),
        ({"condition": {"operator": "==", "value": "a"}}, r"event \d+ must move a threshold"),
        ({"old_condition": {"operator": ">"}}, r"event \d+ must move a threshold"),
        ({"condition": {"value": "a"}}, r"event \d+, condition must compare with a float"),
        ({"left": 1}, r"event \d+ must be an object with the keys condition"),
    ],
)
def test_a_threshold_that_cannot_move_so_is_refused(changes, words):
    _, (contents, arrays) = moved()
    event = contents["history"]["events"][-1]
    for name, value in changes.items():
        event[name] = event[name] | value if type(value) is dict else value
    with pytest.raises(ModelFileError, match=words):
        stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))


# ---------------------------------------------------------------------- what a model is
LABELS = {
    "text": ["no", "yes"],
    "numbers": [-3, 2**80],
    "floats": [0.1, 1e300, -0.0],
    "truth": [False, True],
    "bytes": [b"", b"\xff"],
    "tuples": [(1, "a"), (1, ("b", None, 2.5, math.inf))],
    "mixed": ["1", 1, 2.5, None.__class__.__name__],
    "surrogates": ["\ud800", "\u2028", "\0"],
}


@every_model
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_names_levels_and_labels_come_back_with_their_types(name, labels, tmp_path):
    model = stored.MAKERS[name](categorical=("level",))
    for i in range(40):
        label = labels[i % len(labels)]
        level = i % 3 if name == "paper" else label  # there, levels are text or numbers
        model.learn_one({label: float(i), "level": level, "text": str(i % 3)}, label)
    loaded = reload(model, tmp_path / "model.dmt")
    for part in ("names", "levels", "labels"):
        known = (one._tree.encoder.known for one in (loaded, model))
        assert len({repr(getattr(words, part)) for words in known}) == 1
    assert loaded.classes_.dtype == model.classes_.dtype
    assert repr(loaded.predict_one({})) == repr(model.predict_one({}))


@pytest.mark.parametrize(
    "label", [pd.Timestamp("2024-01-01"), frozenset("a"), complex(1, 2), 1 << 5000], ids=repr
)
def test_what_a_file_cannot_hold_is_named(label, tmp_path):
    path = tmp_path / "model.dmt"
    path.write_text("old")
    model = DynamicModelTreeClassifier()
    model.learn_one({"a": 1.0}, label)
    with pytest.raises(TypeError, match=r"a label is .* of type .*: .*pickle can"):
        model.save(path)
    other = DynamicModelTreeClassifier()
    other.learn_one({label: 1.0}, "yes")
    with pytest.raises(TypeError, match="a feature's name is"):
        other.save(path)
    assert path.read_text() == "old"


def test_scikit_learns_attributes_come_back(tmp_path):
    X = pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, None]})
    model = reload(DynamicModelTreeClassifier().fit(X, [0, 1]), tmp_path / "model.dmt")
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["b", "a"]
    assert model.feature_names_in_.dtype == object
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[["a", "b"]])
    bare = reload(DynamicModelTreeClassifier().fit(X.to_numpy(), [0, 1]), tmp_path / "model.dmt")
    assert not hasattr(bare, "feature_names_in_")


def test_names_of_dicts_come_back_with_their_types(tmp_path):
    rows = [{1: i, (2, "b"): -i, "c": i % 3} for i in range(40)]
    y = [i % 2 for i in range(40)]
    model = DynamicModelTreeClassifier().partial_fit(rows, y)
    loaded = reload(model, tmp_path / "model.dmt")
    assert loaded.feature_names_in_.tolist() == [1, (2, "b"), "c"]
    backwards = [dict(reversed(row.items())) for row in rows]
    np.testing.assert_array_equal(loaded.predict_proba(backwards), model.predict_proba(rows))
    loaded.partial_fit(backwards, y)


PARAMETERS = [
    {"categorical": ("a", 1, (1.5, b"x")), "evidence_window": math.inf, "bins": 8},
    {"categorical": ["a"], "epsilon": np.float32(0.5), "max_nodes": np.int64(7)},
    {"categorical": (), "setting": "paper", "keep_history": False, "seed": 2**64 - 1},
    {"setting": "paper", "gain_step": 0.5, "learning_rate": 0.1, "epsilon": None},
]


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_parameters_come_back(parameters, learns, tmp_path):
    model = DynamicModelTreeClassifier(**parameters)
    if learns:
        model.learn_one({"a": 1, "b": "x"}, "yes")
    loaded = reload(model, tmp_path / "model.dmt")
    assert loaded.get_params() == model.get_params()
    assert type(loaded.categorical) is type(model.categorical)
    assert (loaded._tree is not None) == learns
    for one in (loaded, model):
        one.learn_one({"a": 2, "b": "x"}, "no")
    assert stored.to_bytes(loaded) == stored.to_bytes(model)


def test_categorical_may_be_any_collection_and_comes_back_as_a_list(tmp_path):
    for collection in ({"b", "a"}, np.array(["a", "b"]), pd.Index(["a", "b"])):
        model = DynamicModelTreeClassifier(categorical=collection)
        assert reload(model, tmp_path / "model.dmt").categorical == ["a", "b"]


def test_parameters_that_were_changed_since_are_kept_beside_those_of_the_tree(tmp_path):
    model = DynamicModelTreeClassifier(max_nodes=9)
    model.learn_one({"a": 1.0}, "yes")
    model.set_params(max_nodes=3, epsilon=0.5)
    loaded = reload(model, tmp_path / "model.dmt")
    assert (loaded.max_nodes, loaded._tree.parameters.max_nodes) == (3, 9)
    assert loaded._tree.parameters == model._tree.parameters
    model.set_params(epsilon=2.0)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        model.save(tmp_path / "model.dmt")


class Own(DynamicModelTreeClassifier):
    """A user's subclass."""


def test_what_would_be_lost_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"cannot hold a Own.*use pickle"):
        Own().save(tmp_path / "model.dmt")
    model = FIMTDDClassifier()
    model.note = "mine"
    with pytest.raises(TypeError, match=r"cannot hold 'note'.*use pickle"):
        model.save(tmp_path / "model.dmt")
    del model.note
    model.save(tmp_path / "model.dmt")


def test_a_model_that_could_not_be_read_again_is_not_written(tmp_path):
    path = tmp_path / "model.dmt"
    path.write_text("old")
    model = stored.MAKERS["measured"]()
    stored.learn_batches(model, *stored.draw(100))
    model._tree.engine.start_trial(0, 99, 0.5, False, False, -1, 0.5)  # nobody asks like that
    with pytest.raises(ValueError, match=r"'trial\.feature' names a feature that is not there"):
        model.save(path)
    assert path.read_text() == "old"


# ---------------------------------------------------------------------- hostile files
def make_parts(name="measured", **parameters):
    model = stored.MAKERS[name](**parameters)
    stored.learn_batches(model, *stored.draw(1630))
    assert model.n_nodes_ > 1
    return container.from_bytes(stored.to_bytes(model), models.KIND)


MEASURED, PAPER, FIMTDD = make_parts(), make_parts("paper"), make_parts("FIMT-DD")


def put(name, place, value):
    def change(contents, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


def tell(*path):
    *path, value = path

    def change(contents, arrays):
        item = contents
        for key in path[:-1]:
            item = item[key]
        item[path[-1]] = value

    return change


def drop(name):
    return lambda contents, arrays: arrays.pop(name)


def twice(name):
    def change(contents, arrays):
        arrays[name] = np.concatenate([arrays[name], arrays[name]])

    return change


def add_trial(contents, arrays):
    arrays["trial.feature"] = np.zeros(1, dtype=np.int32)


def change_setting(contents, arrays):
    parameters = contents["learnt"]["parameters"]
    for name in ("evidence_window", "model_window", "bins", "trials", "max_bends"):
        del parameters[name]
    parameters["setting"] = "paper"


def as_type(dtype):
    return lambda contents, arrays: arrays.update({"node.left": arrays["node.left"].astype(dtype)})


def as_table(contents, arrays):
    arrays["node.left"] = arrays["node.left"][None]


def few_nodes(contents, arrays):
    contents["learnt"]["parameters"] |= {"max_nodes": 1, "keep_history": False}
    contents["history"] = None
    for name in [name for name in arrays if name.startswith("history.")]:
        del arrays[name]


def add_array(contents, arrays):
    arrays["more"] = np.zeros(1)


def used_trial(name, value):
    """Of a trial that is under way."""

    def change(contents, arrays):
        place = np.flatnonzero(arrays["trial.feature"] >= 0)[0]
        put(name, place, value)(contents, arrays)

    return change


def in_first_grid(name, value):
    def change(contents, arrays):
        put(name, arrays[f"{name}.lengths"][0] - 1, value)(contents, arrays)

    return change


def same(name, at, other, place):
    return lambda contents, arrays: put(name, at, arrays[other][place])(contents, arrays)


L = "learnt"
HOSTILE = {
    "no root": (MEASURED, put("node.is_alive", 0, 0), "'node.parent' must begin with the root"),
    "a child out of range": (MEASURED, put("node.left", 0, 10**6), "'node.left' names a node"),
    "a negative child": (MEASURED, put("node.left", 0, -7), "'node.left' names a node"),
    "a cycle": (MEASURED, put("node.left", 0, 0), "'node.left' names a node that is no child"),
    "one child twice": (
        MEASURED,
        lambda c, a: put("node.right", 0, a["node.left"][0])(c, a),
        "'node.right'",
    ),
    "half a leaf": (MEASURED, put("node.right", 0, -1), "'node.right' names a node"),
    "an orphan": (MEASURED, put("node.parent", 1, -1), "'node.left' names a node"),
    "a wrong depth": (MEASURED, put("node.depth", 1, 5), "names a node that is no child"),
    "odd flags": (MEASURED, put("node.equality", 0, 2), "'node.equality' must hold only 0 and 1"),
    "no feature": (MEASURED, put("node.feature", 0, 3), "'node.feature' names a feature"),
    "no threshold": (
        MEASURED,
        put("node.threshold", 0, np.nan),
        "'node.feature' has a split at no",
    ),
    "no model": (
        MEASURED,
        put("node.model", 0, 99),
        "'node.model' names a model",
    ),
    "a shared model": (
        MEASURED,
        lambda c, a: put("node.model", 0, a["node.model"][1])(c, a),
        "is another's",
    ),
    "the challenger's": (MEASURED, same("challenger", 0, "node.model", 0), "is another's"),
    "no challenger": (
        MEASURED,
        put("challenger", 0, -1),
        "'model.has_floor' has a noise floor out of place",
    ),
    "a trial's model": (MEASURED, used_trial("trial.left_model", 99), "'trial.left_model' names"),
    "a trial's slot": (MEASURED, used_trial("trial.slot", 10**6), "'trial.slot' names a slot"),
    "a trial's feature": (MEASURED, used_trial("trial.feature", 77), "'trial.feature' names a"),
    "a trial's node": (
        MEASURED,
        put("trial.feature", -1, 0),
        "'trial.(left_model' names|feature' has)",
    ),
    "a wide stride": (MEASURED, put("stride", 0, 2**31 - 8), "'stride' does not fit"),
    "an odd stride": (MEASURED, put("stride", 0, 9), "'stride' does not fit"),
    "many classes": (MEASURED, put("n_classes", 0, 2**31 - 1), "not those of 2147483647 classes"),
    "no class": (MEASURED, put("n_classes", 0, 0), "not those of 0 classes"),
    "a column twice": (MEASURED, put("value_column", 1, 1), "'value_column' names a column"),
    "a far column": (MEASURED, put("missing_column", 0, 50), "'missing_column' names a column"),
    "a number's level": (
        MEASURED,
        put("is_categorical", 1, 1),
        "'value_column' must be -1|'node.feature'",
    ),
    "a level's number": (MEASURED, put("is_categorical", 2, 0), "'value_column' must have"),
    "a short scale": (MEASURED, twice("scale_low"), "'scale_low' has a wrong length"),
    "another slot": (MEASURED, in_first_grid("grid.first_slot", 2**30), "'grid.first_slot' gives"),
    "an implied slot": (MEASURED, in_first_grid("grid.implied", 2**30), "'grid.implied' names"),
    "edges in disorder": (MEASURED, put("grid.edges", 0, 1e9), "'grid.edges' must ascend"),
    "no scale": (MEASURED, put("grid.scale", 0, 0.0), "'grid.scale'"),
    "negative lengths": (MEASURED, put("grid.edges.lengths", 0, -1), "'grid.edges' has wrong"),
    "long lengths": (MEASURED, put("grid.edges.lengths", 0, 2**62), "'grid.edges' has wrong"),
    "more lengths": (MEASURED, twice("grid.edges.lengths"), "'grid.edges' has a wrong number"),
    "more rows": (MEASURED, put("n_rows", 0, 2**62), "'n_rows' is out of range"),
    "a time to come": (MEASURED, put("sums.clock", 0, 1e9), "'sums.clock' must not be ahead"),
    "weights of NaN": (
        MEASURED,
        put("model.numbers", 1, np.nan),
        "'model.numbers' must",
    ),
    "a floor for three": (
        MEASURED,
        put("model.has_floor", 0, 7.0),
        "'model.has_floor' has a noise floor",
    ),
    "a long array": (MEASURED, twice("node.left"), "'node.left' has a wrong length"),
    "an array less": (MEASURED, drop("sums.own_loss"), "the state lacks 'sums.own_loss'"),
    "an array more": (MEASURED, add_array, "arrays that this engine does not know"),
    "a table more": (
        MEASURED,
        lambda c, a: a.update({"history.more": np.zeros(3)}),
        "'history.more' is not part of such a model",
    ),
    "names more": (
        MEASURED,
        lambda c, a: a.update({"names.sparser": np.zeros(3)}),
        "'names.sparser' is not part of such a model",
    ),
    "labels counted": (
        MEASURED,
        lambda c, a: a.update({"seen.more": np.zeros(3)}),
        "label statistics need",
    ),
    "a table less": (MEASURED, drop("history.mark.loss"), "'history.mark.loss' must exist"),
    "no samples": (MEASURED, drop("history.sample.step"), "that this engine does not know"),
    "another type": (
        MEASURED,
        lambda c, a: a.update({"node.left": a["node.left"] * 1.0}),
        "'node.left' is of a wrong",
    ),
    "a table": (
        MEASURED,
        lambda c, a: a.update({"node.left": a["node.left"][None]}),
        "'node.left' has a",
    ),
    "a candidate's feature": (PAPER, put("candidates.feature", 0, 3), "'candidates.feature' names"),
    "a candidate's value": (PAPER, put("candidates.value", 0, np.nan), "'candidates.value' must"),
    "a candidate's sums": (PAPER, twice("candidates.gain"), "'candidates.gain' has parts of no"),
    "a trial in the paper": (PAPER, add_trial, "arrays that this engine does not know"),
    "a key's child": (FIMTDD, put("split_points.keys", 1, 0.0), "'split_points.keys' has a key"),
    "a root": (FIMTDD, put("split_points.root", 0, 999), "'split_points.keys' has a key"),
    "a number of keys": (FIMTDD, put("split_points.n_keys", 0, -5), "'split_points.n_keys'"),
    "a class's place": (FIMTDD, put("place", 0, 5), "'place' must number the classes"),
    "a place twice": (FIMTDD, put("place", 0, 1), "'place' must number the classes"),
    "classes seen": (FIMTDD, put("n_seen", 0, 2**30), "'n_seen' is out of range"),
    "a model of none": (FIMTDD, put("node.model", 0, 0), "'node.model'"),
    "few nodes": (PAPER, few_nodes, "more nodes than the parameters"),
    "many trials": (MEASURED, tell(L, "parameters", "trials", 64), "'trial.feature' has a wrong"),
    "too many nodes": (MEASURED, tell(L, "parameters", "max_nodes", 2**60), "max_nodes must be"),
    "a wrong parameter": (MEASURED, tell("parameters", "epsilon", "x"), "epsilon must be a number"),
    "an unknown parameter": (MEASURED, tell("parameters", "delta", 1), "the parameters have"),
    "another setting": (MEASURED, tell(L, "parameters", "setting", "paper"), "belongs to setting"),
    "the other setting": (
        MEASURED,
        change_setting,
        "the state lacks|does not know|wrong type|no inputs|belongs to setting",
    ),
    "another class": (MEASURED, tell("class", "Exploit"), "a 'Exploit', which this driftree does"),
    "FIMT-DD's class": (MEASURED, tell("class", "FIMTDDClassifier"), "the parameters have"),
    "a shallow tree": (MEASURED, tell(L, "parameters", "max_depth", 0), "deeper than 0"),
    "a name twice": (MEASURED, tell(L, "names", 1, "a"), "names must all be different"),
    "a name less": (MEASURED, tell(L, "names", ["a"]), "not those of 3 features|features that"),
    "a label more": (MEASURED, tell(L, "labels", ["a", "b", "c"]), "not those of 2 classes"),
    "levels of a number": (MEASURED, tell(L, "levels", 0, ["a"]), "levels of feature 'a'"),
    "no levels": (MEASURED, tell(L, "levels", 2, None), "the levels of feature"),
    "more levels": (MEASURED, tell(L, "levels", 2, list(range(33))), "the levels of feature"),
    "no history": (MEASURED, tell("history", None), "not part of such a model"),
    "a short log": (MEASURED, tell("history", "events", []), "not that of this tree|do not fit"),
    "an event's node": (
        MEASURED,
        tell("history", "events", 0, "node", 5),
        "does not exist|the root",
    ),
    "an event's kind": (MEASURED, tell("history", "events", 0, "kind", []), "one of the kinds"),
    "an event's step": (
        MEASURED,
        tell("history", "events", 0, "step", 2**52),
        "event 0 is in the future",
    ),
    "an event's text": (MEASURED, tell("history", "events", 0, "gain", "x"), "must be a float"),
    "an event's rows": (
        MEASURED,
        tell("history", "events", 0, "n_rows", 1632),
        "event 0 is in the future",
    ),
    "many events": (
        MEASURED,
        lambda c, a: c["history"].update(events=c["history"]["events"][:1] * 1001),
        "has 1,001 events, at most 1,000",
    ),
    "a distance of 0": (MEASURED, tell("history", "distance", 0), "from 1 to"),
    "a late first step": (MEASURED, tell("history", "first_step", 2**50), "the first step must"),
    "a sample's node": (MEASURED, put("history.node.node", 0, 8), "do not fit the tree|cannot be"),
    "a sample's weights": (MEASURED, put("history.node.columns", 0, 2), "must have all weights"),
    "a sample's feature": (
        MEASURED,
        put("history.entrant.feature", 0, 9),
        "features that do not exist",
    ),
    "a mark to come": (MEASURED, put("history.mark.clock", 0, 1e9), "a time in the future"),
    "a mark nowhere": (MEASURED, put("history.mark.node", 0, 10**6), "impossible nodes"),
    "no contents": (MEASURED, lambda c, a: c.clear(), "is not part of such a model"),
    "half the features": (MEASURED, tell("feature_names_in", ["a"]), "one name per feature"),
}


@pytest.mark.parametrize(("parts", "change", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_gets_an_error_that_names_what_is_wrong(parts, change, words, tmp_path):
    contents, arrays = json.loads(json.dumps(parts[0])), dict(parts[1])
    change(contents, arrays)
    path = tmp_path / "model.dmt"
    container.write(path, models.KIND, contents, arrays)
    with pytest.raises(ModelFileError, match=words) as caught:
        driftree.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_takes_no_memory_for_nodes_that_it_has_not():
    """A small file may say that 65,535 nodes are allowed."""
    contents, arrays = json.loads(json.dumps(MEASURED[0])), MEASURED[1]
    before = stored.from_bytes(container.to_bytes(models.KIND, contents, arrays)).memory_usage()
    for parameters in (contents["parameters"], contents["learnt"]["parameters"]):
        parameters["max_nodes"] = 65535
    model = stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))
    assert model.memory_usage() < before + 1000


def test_an_engine_that_refuses_a_state_stays_what_it_was():
    model = stored.from_bytes(container.to_bytes(models.KIND, *PAPER))
    before = stored.to_bytes(model)
    engine = model._tree.engine
    wrong = engine.arrays()
    wrong["clock"] = wrong["clock"] + 1
    wrong["node_gradient.sum.lengths"] = wrong["node_gradient.sum.lengths"] + 1  # the last
    with pytest.raises(ValueError, match="node_gradient"):
        engine.restore(wrong)
    assert stored.to_bytes(model) == before
    stored.exercise(model)


def test_a_parameter_that_a_file_does_not_know_yet_has_its_default():
    contents, arrays = json.loads(json.dumps(MEASURED[0])), MEASURED[1]
    for parameters in (contents["parameters"], contents["learnt"]["parameters"]):
        del parameters["trials"]
    model = stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))
    assert (model.trials, model._tree.parameters.trials) == (None, 3)


# ---------------------------------------------------------------------- files of old
LATER = {"label_reach"}  # arrays that may lack: they have a value to begin with


def golden_module():
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:the rows hold no feature")
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.dmt")), ids=lambda path: path.stem)
def test_files_of_every_format_are_read_forever(path):
    noted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    model = driftree.load(path)
    said = golden_module().note(model)
    probabilities = said.pop("probabilities", []), noted.pop("probabilities", [])
    assert said == noted
    for own, expected in zip(*probabilities, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-9)
    stored.exercise(model)


@pytest.mark.parametrize("name", ["measured", "paper", "fimtdd"])
def test_what_is_stored_is_what_format_1_says(name):
    """Who changes this raises FORMAT_VERSION, still reads format 1, and raises STATE_VERSION."""
    model = driftree.load(GOLDEN / f"format-1-{name}.dmt")
    then = container.read(GOLDEN / f"format-1-{name}.dmt", models.KIND)
    now = container.from_bytes(stored.to_bytes(model), models.KIND)
    assert {key: array.dtype for key, array in now[1].items() if key not in LATER} == {
        key: array.dtype for key, array in then[1].items()
    }
    assert now[0].keys() == then[0].keys()
    assert now[0]["learnt"].keys() == then[0]["learnt"].keys()


def test_there_is_a_file_of_every_kind():
    golden = golden_module()
    assert {path.name for path in GOLDEN.glob("*.dmt")} == {
        golden.path_of(make).name for make in golden.MODELS
    }


def test_events_have_no_field_that_a_file_forgets():
    """What is new in an event must be told to `histories`."""
    from driftree.learn.storage.histories import DECODERS, KINDS

    for kind in KINDS.values():
        names = {field.name for field in dataclasses.fields(kind)}
        assert names <= DECODERS.keys() | {"removed"}
