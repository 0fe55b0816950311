"""`open_stream`: every source gives the same rows, and nothing is lost silently."""

import io
import itertools
import os
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import datasets

from driftree import streams
from driftree.streams import InputWarning, open_stream
from driftree.streams.rows import Rows
from table_data import (
    DATA,
    KINDS,
    LABELS,
    N_ROWS,
    NUMBERS,
    SOURCES,
    assert_same_rows,
    batches_of_frames,
    collect,
    read_text,
    rows_of_dicts,
    write_csv,
    write_parquet,
)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("batch", [1000, 64, 5000])
def test_every_source_gives_the_same_rows(source, batch, tmp_path):
    stream = open_stream(SOURCES[source](tmp_path / "data"), batch=batch)
    batches = list(stream)
    assert [len(y) for _, y in batches] == [
        min(batch, N_ROWS - start) for start in range(0, N_ROWS, batch)
    ]
    assert all(isinstance(X, KINDS.get(source, object)) for X, _ in batches)
    assert_same_rows(batches)
    if source != "batches of frames":
        assert stream.feature_names == list(DATA)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("skip_rows", [1, 700, 1450, N_ROWS - 1])
def test_the_rest_is_the_same_from_any_row(source, skip_rows, tmp_path):
    stream = open_stream(SOURCES[source](tmp_path / "data"), batch=100)
    rest = list(stream.batches(skip_rows=skip_rows))
    assert_same_rows(rest, skip_rows)
    assert len(rest[0][1]) == min(100 - skip_rows % 100, N_ROWS - skip_rows)


@pytest.mark.parametrize("batch", [4, 100])
@pytest.mark.parametrize("skip_rows", [0, 30, 57, 64, 130])
def test_rows_after_some_have_the_columns_that_they_would_have_had(skip_rows, batch):
    rows = [({"a": float(i), **({"late": 1.0} if i >= 60 else {})}, i % 2) for i in range(100)]
    rows += [({f"word {i % 7}": 1}, 0) for i in range(60)]  # only by the first rows not sparse
    whole = {batch * i: X for i, (X, _) in enumerate(open_stream(rows, batch=batch))}
    row = skip_rows
    for X, y in open_stream(rows, batch=batch).batches(skip_rows=skip_rows):
        assert list(X) == list(whole[row - row % batch])
        row += len(y)
    assert row == 160


@pytest.mark.parametrize("source", SOURCES)
def test_the_number_of_rows_can_be_limited(source, tmp_path):
    stream = open_stream(SOURCES[source](tmp_path / "data"), batch=200, n_rows=1100)
    assert stream.n_rows == 1100
    assert_same_rows(stream.batches(skip_rows=30), 30, 1100)


@pytest.mark.parametrize("source", ["csv", "gzip", "parquet", "pandas", "polars", "pyarrow"])
def test_a_share_of_the_stream_is_a_batch(source, tmp_path):
    stream = open_stream(SOURCES[source](tmp_path / "data"), batch=0.01)
    assert (stream.n_rows, stream.batch_rows) == (N_ROWS, 23)
    assert_same_rows(stream)
    assert_same_rows(stream)  # and again
    assert open_stream(SOURCES[source](tmp_path / "data"), batch=1e-9).batch_rows == 1


@pytest.mark.parametrize("source", ["binary file object", "text file object", "rows"])
def test_what_can_be_read_only_once_says_so(source, tmp_path):
    opened = SOURCES[source](tmp_path / "data")
    with pytest.raises(ValueError, match=r"batch=0.1 is a fraction .* batch=1000, or"):
        open_stream(opened, batch=0.1)
    stream = open_stream(opened, batch=0.1, n_rows=1000)
    assert stream.batch_rows == 100
    next(iter(stream))
    with pytest.raises(RuntimeError, match="only once"):
        iter(stream)


@pytest.mark.parametrize("source", ["csv", "gzip"])
def test_standard_input(source, tmp_path, monkeypatch):
    content = SOURCES[source](tmp_path / "data").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    stream = open_stream("-")
    assert (stream.name, stream.feature_names, stream.n_rows) == ("standard input", None, None)
    assert_same_rows(stream)
    with pytest.raises(ValueError, match="the number of rows of standard input"):
        open_stream("-", batch=0.1)


def test_arrays():
    whole = np.column_stack([NUMBERS, LABELS])
    for stream in (
        open_stream((NUMBERS, LABELS), batch=500),
        open_stream(whole, batch=500),
        open_stream(np.roll(whole, 1, axis=1), target=0, batch=500),
        open_stream((NUMBERS[i : i + 7], LABELS[i : i + 7]) for i in range(0, N_ROWS, 7)),
    ):
        X, y = map(np.concatenate, zip(*stream, strict=True))
        np.testing.assert_array_equal(X, NUMBERS)
        np.testing.assert_array_equal(y, LABELS)


def test_our_generators_are_cut_anew():
    X, y = map(np.concatenate, zip(*open_stream(streams.sea(1000), batch=64), strict=True))
    X_whole, y_whole = next(streams.sea(1000))
    np.testing.assert_array_equal(X, X_whole)
    np.testing.assert_array_equal(y, y_whole)


def test_river_data_sets():
    stream = open_stream(datasets.Phishing(), batch=0.1)
    assert (stream.name, stream.n_rows, stream.batch_rows) == ("Phishing", 1250, 125)
    X, y = collect(stream)
    rows, labels = zip(*datasets.Phishing(), strict=True)
    assert [dict(zip(X, row, strict=True)) for row in zip(*X.values(), strict=True)] == list(rows)
    assert y.dtype == np.int64
    assert y.tolist() == list(labels)
    assert collect(stream.batches(skip_rows=1000))[1].tolist() == list(labels[1000:])
    (_, y), *_ = open_stream(datasets.ChickWeights(), batch=10)
    assert y.dtype == np.float64  # the task is regression, the labels are whole numbers


def test_the_index_of_a_pandas_frame_is_no_column(tmp_path):
    frame = pd.DataFrame({**DATA, "label": LABELS})
    shuffled = np.random.default_rng(1).permutation(N_ROWS)
    for name in (None, "id"):
        frame.set_index(pd.Index(shuffled, name=name)).to_parquet(tmp_path / "a")
        stream = open_stream(tmp_path / "a")
        assert stream.feature_names == list(DATA)
        told = warnings.catch_warnings() if name is None else pytest.warns(InputWarning, match=name)
        with told:
            assert_same_rows(stream)


def test_names_of_columns_may_be_numbers():
    frame = pd.DataFrame(np.arange(12).reshape(3, 4))
    (X, y), *_ = open_stream(frame, target=1)
    assert (list(X.columns), y.tolist()) == ([0, 2, 3], [1, 5, 9])


def test_lists_are_read_as_the_learners_read_them():
    rows, labels = [[1, "a"], [2.5, "b"]], [0, 1]
    for source in ((rows, labels), [(rows, labels)]):
        (X, _), *_ = open_stream(source)
        assert X.tolist() == rows
    (X, y), (X_last, _) = open_stream([({"a": [1, 2], "b": ["s", None]}, labels)] * 3, batch=4)
    assert (X["a"].tolist(), X["b"].tolist(), y.tolist()) == (
        [1, 2] * 2,
        ["s", None] * 2,
        [0, 1] * 2,
    )
    assert X_last["a"].tolist() == [1, 2]


def test_cells_may_be_of_any_kind():
    rows = [({"a": [i], "b": None}, 0) for i in range(5)]
    (X, _), *_ = open_stream(open_stream(rows, batch=2), batch=5)
    assert X["a"].tolist() == [[i] for i in range(5)]


class InterruptedStreamError(Exception):
    """Of an iterable, and unknown to us."""


def interrupted(items, error):
    yield from items
    raise error


@pytest.mark.parametrize("batch", [100, 1000])
@pytest.mark.parametrize(
    "error", [InterruptedStreamError("no more"), OSError("gone"), KeyError("a")]
)
@pytest.mark.parametrize("is_batched", [True, False])
def test_rows_before_an_error_are_not_lost(batch, error, is_batched):
    items = batches_of_frames(350) if is_batched else rows_of_dicts()
    items = itertools.islice(items, 2 if is_batched else 700)
    read = []
    with pytest.raises(type(error)) as caught:
        read.extend(open_stream(interrupted(items, error), batch=batch))
    assert caught.value is error
    assert_same_rows(read, stop=700)


def test_no_more_rows_are_taken_than_asked_for():
    rows = rows_of_dicts()
    assert sum(len(y) for _, y in open_stream(rows, n_rows=10)) == 10
    assert sum(1 for _ in rows) == N_ROWS - 10


def test_a_stream_of_a_stream(tmp_path):
    once = open_stream(rows_of_dicts(), batch=77)
    stream = open_stream(once, batch=1000)
    assert (stream.name, stream.n_rows) == ("generator", None)
    batches, others = iter(stream), iter(stream)
    assert len(next(batches)[1]) == 1000
    for read in (lambda: next(others), lambda: iter(once), lambda: iter(stream)):
        with pytest.raises(RuntimeError, match="generator can be read only once"):
            read()
    inner = open_stream(write_csv(tmp_path / "a"), batch=77, n_rows=2000)
    stream = open_stream(inner, batch=0.1)
    assert (stream.n_rows, stream.batch_rows) == (2000, 200)
    for _ in range(2):
        assert_same_rows(stream, stop=2000)
    assert_same_rows(inner, stop=2000)


def test_endless_generators():
    endless = datasets.synth.SEA(seed=1)
    with pytest.raises(ValueError, match="the number of rows of SEA is not known"):
        open_stream(endless, batch=0.1)
    assert len(list(open_stream(endless, batch=0.1, n_rows=50))) == 10
    first, second = itertools.islice(open_stream(endless, batch=3), 2)
    assert [*first[1], *second[1]] == [y for _, y in endless.take(6)]


def test_features_of_rows_may_come_and_go():
    first = {"a": 1, "b": "t"}
    rows = [(first, "x"), ({"b": "u"}, "y"), ({"a": 2.5, "c": True}, "x"), ({"c": False}, "x")]
    (X, y), (X_last, _) = open_stream(rows, batch=3)
    np.testing.assert_array_equal(X["a"], [1, np.nan, 2.5])
    assert (X["b"].tolist(), X["c"].tolist()) == (["t", "u", None], [None, None, True])
    assert (y.tolist(), list(X_last)) == (["x", "y", "x"], ["c"])


def test_rows_without_any_feature_are_rows():
    """Such as those of an outage, even if a whole block consists of them."""
    rows = [({"a": 1.0}, "x")] * 2 + [({}, "y")] * 3 + [({"a": 2.0}, "x")]
    batches = list(open_stream(rows, batch=2))
    assert [y.tolist() for _, y in batches] == [["x", "x"], ["y", "y"], ["y", "x"]]
    assert [Rows(X, y).dicts for X, y in batches] == [[{"a": 1}] * 2, [{}] * 2, [{}, {"a": 2}]]
    blocks = [({}, 0.0)] * 1000 + [({"a": 1.0}, 1.0)] * 2
    ((X, y),) = open_stream(blocks, batch=2000)
    assert np.isnan(X["a"]).sum() == 1000
    assert len(y) == 1002


def test_rows_that_hardly_share_a_feature_stay_dicts():
    rows = [({"call": 1, "now": 2}, "x"), ({"ok": 1}, "y"), ({"see": 1, "ok": 1}, "x")]
    stream = open_stream(rows, batch=2)
    (X, y), (X_last, _) = stream
    assert (X, y.tolist()) == ([{"call": 1, "now": 2}, {"ok": 1}], ["x", "y"])
    assert (X_last, stream.feature_names) == ([{"see": 1, "ok": 1}], ["call", "now", "ok", "see"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: open_stream("no_such_thing"), r"'no_such_thing' names no file; a stream can be"),
        (lambda: open_stream("/"), "'/' is a directory; a stream can be a path"),
        (lambda: open_stream(None), "got 'NoneType', but a stream can be a path"),
        (lambda: open_stream({"a": [1]}), "got 'dict', but a stream can be a path"),
        (lambda: open_stream(pl.LazyFrame({"a": [1]})), "got 'LazyFrame', but a stream can be"),
        (lambda: open_stream(NUMBERS, batch=0), "batch must be a number of rows.* but is 0"),
        (lambda: open_stream(NUMBERS, batch=1.0), "batch must be .* but is 1.0"),
        (lambda: open_stream(NUMBERS, n_rows=0), "n_rows must be at least 1"),
        (lambda: open_stream(NUMBERS, on_bad_row="x"), '"stop" or "skip", but is \'x\''),
        (lambda: open_stream(NUMBERS, categorical="a"), r"write \['a'\]"),
        (lambda: open_stream(NUMBERS, categorical=["a"]), "pass it to the learner"),
        (lambda: open_stream(NUMBERS, target=2), "position of one of the columns, .* got 2"),
        (lambda: open_stream(LABELS), "position of one of the columns"),
        (lambda: open_stream((LABELS, LABELS)), "two dimensions, .* X.reshape"),
        (lambda: open_stream((NUMBERS, NUMBERS)), "y must have one dimension"),
        (lambda: open_stream((NUMBERS, [1])), "the array has 2345 and 1"),
        (lambda: list(open_stream([(NUMBERS, [1])])), "a batch of list has 2345 and 1"),
        (lambda: list(open_stream([(DATA, [1])])), "a batch of list has 2345 and 1"),
        (
            lambda: open_stream(([[1, 2], [3]], [0, 1])),
            r"same number of cells, got rows of \[1, 2\] cells",
        ),
        (lambda: open_stream(rows_of_dicts(), target="a"), "omit target"),
        (lambda: open_stream(pd.DataFrame(DATA), target="b"), "no column 'b'; its columns are"),
        (lambda: list(open_stream([])), "list holds no rows"),
        (lambda: list(open_stream([1, 2])), "list must yield rows, .* got 1"),
        (lambda: list(open_stream([({}, {})])), "list must yield rows"),
        (lambda: open_stream(NUMBERS).batches(-1), "skip_rows must be at least 0"),
        (lambda: read_text("a,b\n1,2\n", target="c"), "no column 'c'; its columns are 'a', 'b'"),
        (lambda: read_text("a,b\n1,2\n", categorical=["c"]), "categorical names 'c', but"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        call()


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="reading Parquet needs pyarrow: pip install pyarrow"):
        open_stream(path)


@pytest.mark.parametrize(
    "labels",
    [(1, "1", 2.5), [1, "1", 2.5], np.array([2**63 + 5, 1, 2**64 - 1], dtype=np.uint64)],
)
def test_labels_are_not_changed(labels):
    [(_, y)] = open_stream((np.eye(3), labels))
    assert y.tolist() == list(labels)


def test_masked_cells_are_missing():
    cells = np.ma.masked_array([[1.0, 2.0, 0.0], [3.0, 4.0, 1.0]], mask=[[1, 0, 0], [0, 0, 1]])
    for source in (cells, (cells[:, :2], cells[:, 2])):
        [(X, y)] = open_stream(source)
        np.testing.assert_array_equal(X, [[np.nan, 2], [3, 4]])
        np.testing.assert_array_equal(y, [0, np.nan])


def test_names_of_columns_may_be_tuples():
    names = [("a", "low"), ("a", "high"), ("b", "sold")]
    [(X, y)] = open_stream(pd.DataFrame(np.eye(3), columns=pd.MultiIndex.from_tuples(names)))
    assert list(X.columns) == names[:2]
    assert y.tolist() == [0, 0, 1]


def test_any_path_will_do(tmp_path):
    write_csv(tmp_path / "data")
    with os.scandir(tmp_path) as entries:
        assert_same_rows(list(open_stream(next(entries))))


@pytest.mark.parametrize("write", [pd.DataFrame.to_parquet, pd.DataFrame.to_feather])
@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_damaged_tables_are_named(tmp_path, write, damage):
    path = tmp_path / "table"
    rng = np.random.default_rng(1)
    write(pd.DataFrame({"a": rng.normal(size=5000), "target": 1}), path)
    content = path.read_bytes()
    half = len(content) // 2
    rest = b"" if damage == "truncated" else bytes(half)
    path.write_bytes(content[:half] + rest)
    with pytest.raises(OSError, match=r"table is truncated or damaged (Parquet|Feather)"):
        list(open_stream(path))
