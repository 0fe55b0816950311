"""`open_stream`: every source gives the same rows, and nothing is lost silently."""

import csv
import gzip
import io
import itertools
import pickle
import sys
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from river import datasets

from driftree import streams
from driftree.streams import BadRowError, BadRowsWarning, open_stream

N_ROWS = 2345
rng = np.random.default_rng(1)
DATA = {
    "age": np.where(rng.random(N_ROWS) < 0.1, np.nan, rng.integers(18, 90, N_ROWS)),
    "income": rng.normal(size=N_ROWS).round(4),
    "car": rng.choice(["van", "bus, old", "öre"], N_ROWS).astype(object),
}
LABELS = rng.integers(0, 3, N_ROWS)
NUMBERS = np.column_stack([DATA["age"], DATA["income"]])


def write_csv(path, delimiter=",", columns=DATA, labels=LABELS):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow([*columns, "target"])
        writer.writerows(zip(*columns.values(), labels.tolist(), strict=True))
    return path


def write_text(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def write_parquet(path):
    table = pa.table({**DATA, "target": LABELS})
    parquet.write_table(table, path, row_group_size=700)
    return path


def as_bytes(path):
    return io.BytesIO(write_csv(path).read_bytes())


def rows_of_dicts():
    for *cells, label in zip(*DATA.values(), LABELS.tolist(), strict=True):
        yield dict(zip(DATA, cells, strict=True)), label


def batches_of_frames(batch_rows):
    for start in range(0, N_ROWS, batch_rows):
        rows = slice(start, start + batch_rows)
        yield pd.DataFrame(DATA)[rows], LABELS[rows]


SOURCES = {
    "csv": write_csv,
    "csv as text": lambda path: str(write_csv(path)),
    "semicolons": lambda path: write_csv(path, ";"),
    "tabs": lambda path: write_csv(path, "\t"),
    "bom": lambda path: write_text(path, b"\xef\xbb\xbf" + write_csv(path).read_bytes()),
    "line feeds": lambda path: write_text(path, write_csv(path).read_bytes().replace(b"\r", b"")),
    "gzip": lambda path: write_text(path, gzip.compress(write_csv(path).read_bytes())),
    "binary file object": as_bytes,
    "gzipped file object": lambda path: io.BytesIO(gzip.compress(as_bytes(path).getvalue())),
    "text file object": lambda path: io.StringIO(as_bytes(path).getvalue().decode()),
    "parquet": write_parquet,
    "pandas": lambda _: pd.DataFrame({**DATA, "target": LABELS}),
    "polars": lambda _: pl.DataFrame({**DATA, "target": LABELS}),
    "pyarrow": lambda _: pa.table({**DATA, "target": LABELS}),
    "frame and list": lambda _: (pd.DataFrame(DATA), LABELS.tolist()),
    "frame and series": lambda _: (pl.DataFrame(DATA), pl.Series(LABELS)),
    "rows": lambda _: rows_of_dicts(),
    "batches of frames": lambda _: batches_of_frames(300),
    "a stream": lambda path: open_stream(write_csv(path), batch=77),
}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table, "parquet": pa.Table}


def to_dict(X):
    if isinstance(X, pa.Table):
        X = X.to_pandas()
    columns = X if isinstance(X, dict) else {name: X[name].to_numpy() for name in X.columns}
    return {name: np.asarray(cells, dtype=object) for name, cells in columns.items()}


def collect(batches):
    features, labels = zip(*batches, strict=True)
    columns = [to_dict(X) for X in features]
    X = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    return X, np.concatenate(labels)


def assert_same_rows(batches, start=0, stop=N_ROWS):
    X, y = collect(batches)
    assert list(X) == list(DATA)
    for name in ("age", "income"):
        np.testing.assert_array_equal(X[name].astype(float), DATA[name][start:stop])
    assert X["car"].tolist() == DATA["car"][start:stop].tolist()
    np.testing.assert_array_equal(y, LABELS[start:stop])
    assert y.dtype == np.int64


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


def test_rows_are_counted_as_they_are_read(tmp_path):
    path = write_text(tmp_path / "data", 'a,target\n"1\n,2",x\n\n3,y\n4,"z\nz"')
    assert open_stream(path, batch=0.5).n_rows == 3
    assert sum(len(y) for _, y in open_stream(path, categorical=["a"])) == 3


@pytest.mark.parametrize("source", ["binary file object", "text file object", "rows"])
def test_what_can_be_read_only_once_says_so(source, tmp_path):
    opened = SOURCES[source](tmp_path / "data")
    with pytest.raises(ValueError, match=r"batch=0.1 is a share .* batch=1000, or"):
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
    with pytest.raises(ValueError, match="how many rows standard input holds"):
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


def test_endless_generators():
    endless = datasets.synth.SEA(seed=1)
    with pytest.raises(ValueError, match="how many rows SEA holds is not known"):
        open_stream(endless, batch=0.1)
    assert len(list(open_stream(endless, batch=0.1, n_rows=50))) == 10
    first, second = itertools.islice(open_stream(endless, batch=3), 2)
    assert [*first[1], *second[1]] == [y for _, y in endless.take(6)]


def test_features_of_rows_may_come_and_go():
    rows = [({"a": 1}, "x"), ({"b": "t"}, "y"), ({"a": 2.5, "c": True}, "x"), ({"c": False}, "x")]
    (X, y), (X_last, _) = open_stream(rows, batch=3)
    np.testing.assert_array_equal(X["a"], [1, np.nan, 2.5])
    assert (X["b"].tolist(), X["c"].tolist()) == ([None, "t", None], [None, None, True])
    assert (y.tolist(), list(X_last)) == (["x", "y", "x"], ["c"])


# ---------------------------------------------------------------------- what a CSV file may hold
def read_text(text, **options):
    return collect(open_stream(io.StringIO(text), **options))


def test_missing_cells_are_nan_or_none():
    text = "n,t,target\n1,a,x\n,,x\nNA,NA,x\nNaN,NaN,x\nnull,null,x\n?,?,x\n nan ,nan,x\n2,b,y\n"
    (X, _), *_ = open_stream(io.StringIO(text))
    np.testing.assert_array_equal(X["n"], [1] + [np.nan] * 6 + [2])
    assert X["n"].dtype == np.float64
    assert X["t"].tolist() == ["a"] + [None] * 6 + ["b"]


def test_categorical_columns_are_text_although_they_hold_numbers():
    X, y = read_text("zip,target\n01067,1\n10115,2\n", categorical=["zip", "target"])
    assert X["zip"].tolist() == ["01067", "10115"]
    assert y.tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("cells", "expected", "dtype"),
    [
        ("1 -2 3.0", [1, -2, 3], np.int64),
        ("9007199254740993", [9007199254740993], np.int64),
        ("1.5 2 1e3", [1.5, 2, 1000], np.float64),
        ("yes no 1", ["yes", "no", "1"], object),
        ("1_0 2_0", ["1_0", "2_0"], object),
    ],
)
def test_labels_are_whole_numbers_numbers_or_text(cells, expected, dtype):
    labels = cells.split()
    if dtype is np.int64:  # what is decided by the first rows holds for the later ones
        labels = ["7"] * 1000 + labels
    _, y = read_text("a,b\n" + "".join(f"0,{label}\n" for label in labels))
    assert (y.dtype, y[-len(expected) :].tolist()) == (dtype, expected)


def test_the_label_is_named_or_called_target_or_last():
    text = "a,target,b\n1,2,3\n"
    assert read_text(text)[1].tolist() == [2]
    assert read_text(text, target="a")[1].tolist() == [1]
    assert read_text(text.replace("target", "t"))[1].tolist() == [3]
    frame = pd.DataFrame({"a": [1], "target": [2], "b": [3]})
    assert [open_stream(frame).feature_names, open_stream(frame, target="b").feature_names] == [
        ["a", "b"],
        ["a", "target"],
    ]


def test_kinds_do_not_depend_on_the_size_of_the_batches(tmp_path):
    cells = ["1"] * 400 + ["x"] * 600 + ["2"] * 600
    path = write_csv(tmp_path / "a", columns={"a": cells}, labels=np.arange(1600))
    for batch in (1, 100, 2000):
        X, _ = collect(open_stream(path, batch=batch))
        assert X["a"].tolist() == cells


values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
texts = values.map(lambda text: f"x{text}")  # no number, and not missing
rows = st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), texts, texts))


# With line feeds the writer would leave lone carriage returns without quotes.
styles = st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\n", csv.QUOTE_NONNUMERIC)])


@given(rows.filter(bool), st.sampled_from(",;\t"), styles, st.integers(1, 5))
def test_what_is_written_is_read(rows, delimiter, style, batch):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=style[0], quoting=style[1])
    writer.writerow(["number", 'a\n,;\t"b', "label"])
    writer.writerows(rows)
    stream = open_stream(io.BytesIO(text.getvalue().encode()), batch=batch)
    X, y = collect(stream)
    assert list(zip(*X.values(), y, strict=True)) == rows


# ---------------------------------------------------------------------- malformed rows
GOOD = [f"{i},t{i % 2},{i % 3}\n" for i in range(1500)]
MALFORMED = {
    "too few cells": ("3,t1\n", "target", "expected 3 cells, got 2"),
    "too many cells": ("3,t1,0,5\n", 4, "expected 3 cells, got 4"),
    "text": ("n/a?,t1,0\n", "n", "expected a number, got 'n/a?'"),
    "decimal comma": ('"1,5",t1,0\n', "n", "expected a number, got '1,5'"),
    "underscore": ("1_000,t1,0\n", "n", "expected a number, got '1_000'"),
    "infinity": ("-inf,t1,0\n", "n", "expected a finite number, got '-inf'"),
    "overflow": ("1e999,t1,0\n", "n", "expected a finite number, got '1e999'"),
    "missing label": ("3,t1,\n", "target", "the label is missing, got ''"),
    "label of another kind": ("3,t1,2.5\n", "target", "expected a whole number, as in the first"),
    "text as label": ("3,t1,no\n", "target", "expected a number, got 'no'"),
    "bytes that are no UTF-8": (b"3,\xff,0\n", "t", "is not UTF-8: save the file as UTF-8"),
    "text after a quote": ('3,"t"1,0\n', None, "cannot be cut into cells: ',' expected after '\"'"),
}

EXEMPT = ("label of another kind", 10)


def write_malformed(path, malformed, place):
    cells = malformed if isinstance(malformed, bytes) else malformed.encode()
    before = "".join(["n,t,target\n", '0,"line\nbreak",0\n', "\n", *GOOD[:place]])
    return write_text(path, before.encode() + cells + "".join(GOOD[place:]).encode())


@pytest.mark.parametrize(
    ("kind", "place"),
    # Among the first rows, 2.5 says that labels are not whole.
    [(kind, place) for kind in MALFORMED for place in (10, 1400) if (kind, place) != EXEMPT],
)
def test_a_malformed_row_stops_or_is_skipped(kind, place, tmp_path):
    malformed, column, reason = MALFORMED[kind]
    path = write_malformed(tmp_path / "a.csv", malformed, place)
    where = (str(path), place + 5, column)

    read = []
    with pytest.raises(BadRowError) as caught:
        read.extend(open_stream(path, batch=300))
    error = caught.value
    assert (error.file, error.line, error.column) == where
    assert reason in error.reason
    assert str(error).startswith(f"{path}, line {place + 5}")
    assert 'on_bad_row="skip")' in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert sum(len(y) for _, y in read) == place + 1  # all rows before it

    stream = open_stream(path, batch=300, on_bad_row="skip")
    with pytest.warns(BadRowsWarning, match="^1 malformed row was skipped:\n") as warned:
        X, y = collect(stream)
    assert (X["n"].tolist(), len(y)) == ([0, *range(1500)], 1501)
    assert stream.bad_rows.count == 1
    assert stream.bad_rows.first[0][:3] == where
    assert str(stream.bad_rows.first[0]) in str(warned[0].message)
    assert warned[0].filename == __file__
    for skip_rows in (5, place, place + 1, place + 2, 1450):
        with pytest.warns(BadRowsWarning):
            X_rest, _ = collect(stream.batches(skip_rows=skip_rows))
        assert X_rest["n"].tolist() == X["n"].tolist()[skip_rows:]


def test_all_malformed_rows_are_counted_and_the_first_ones_kept(tmp_path):
    lines = [f"{i},{i % 2}\n" if i % 3 else f"{i}\n" for i in range(3000)]
    path = write_text(tmp_path / "a.csv", "n,target\n" + "".join(lines))
    stream = open_stream(path, on_bad_row="skip")
    for _ in range(2):  # fresh counts
        with pytest.warns(BadRowsWarning, match=r"(?s)^1,000 malformed rows .* 997 more$"):
            assert sum(len(y) for _, y in stream) == 2000
        assert stream.bad_rows.count == 1000
        assert [row.line for row in stream.bad_rows.first] == list(range(2, 32, 3))


def test_an_open_quote_costs_no_more_than_it_must(tmp_path):
    lines = [*GOOD[:20], '20,"open,0\n', *GOOD[20:], '7,"closed",1\n', *GOOD]
    path = write_text(tmp_path / "a.csv", "n,t,target\n" + "".join(lines))
    stream = open_stream(path, on_bad_row="skip")
    with pytest.warns(BadRowsWarning, match="line 22: .*a quote was opened; read up to line 1503"):
        assert sum(len(y) for _, y in stream) == 1520


def test_a_file_may_be_malformed_throughout(tmp_path):
    stream = open_stream(write_text(tmp_path / "a", "a,b\n" + "1\n" * 2000), on_bad_row="skip")
    with pytest.warns(BadRowsWarning, match="2,000 malformed"):
        assert list(stream) == []


def test_a_truncated_file_gives_its_rows_and_then_an_error(tmp_path):
    content = gzip.compress(write_csv(tmp_path / "a").read_bytes())
    path = write_text(tmp_path / "cut.csv.gz", content[: len(content) // 2])
    read = []
    with pytest.raises(
        OSError, match=r"cut.csv.gz is cut off or damaged after line (\d+)"
    ) as error:
        read.extend(open_stream(path, batch=100))
    n_read = sum(len(y) for _, y in read)
    assert n_read > 800
    assert f"after line {n_read + 1}," in str(error.value)
    assert_same_rows(read, stop=n_read)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: a header line"),
        ("\na,b\n1,2\n", "begins with a blank line: a header line"),
        ("a,b\n", "holds a header, but no rows"),
        ("1,2.5\n3,4\n", r"holds numbers only \('1', '2.5'\): put a line with the names"),
        ("a|b\n1|2\n", "one column only, 'a|b'"),
        ("a,,b\n1,2,3\n", "has no name for column 2"),
        ("a,b,a\n1,2,3\n", "has column 'a' twice"),
        ("a,b\n1,2\n".encode("utf-16"), "is no text in UTF-8"),
        ('"a,b\n1,2\n', "header of .* is malformed: unexpected end of data"),
        (gzip.compress(b"a,b\n")[:12], "is cut off or damaged after line 0"),
    ],
)
def test_files_that_are_no_tables(content, message, tmp_path):
    path = write_text(tmp_path / "a.csv", content)
    with pytest.raises((ValueError, OSError), match=message):
        list(open_stream(path))


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
        (lambda: open_stream(NUMBERS, categorical=["a"]), "give it to the learner"),
        (lambda: open_stream(NUMBERS, target=2), "position of one of the columns, .* got 2"),
        (lambda: open_stream(LABELS), "position of one of the columns"),
        (lambda: open_stream((LABELS, LABELS)), "two dimensions, .* X.reshape"),
        (lambda: open_stream((NUMBERS, NUMBERS)), "y must have one dimension"),
        (lambda: open_stream((NUMBERS, [1])), "the array has 2345 and 1"),
        (lambda: open_stream(rows_of_dicts(), target="a"), "leave target out"),
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


def test_a_file_object_of_the_user_stays_open(tmp_path):
    with write_csv(tmp_path / "a").open("rb") as file:
        assert_same_rows(open_stream(file))
        assert not file.closed


@pytest.mark.parametrize("kind", ["csv", "gzip"])
def test_memory_is_bounded(kind, tmp_path):
    def measure(n_copies):
        header, *lines = write_csv(tmp_path / "a").read_bytes().splitlines(keepends=True)
        content = header + b"".join(lines) * n_copies
        path = write_text(tmp_path / "b", gzip.compress(content, 1) if kind == "gzip" else content)
        stream = open_stream(path, batch=0.0001)
        tracemalloc.start()
        try:
            for _ in stream:
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small = measure(1)
    assert measure(20) < 2 * small


def test_good_files_warn_of_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_stream(write_csv(tmp_path / "a"), on_bad_row="skip").bad_rows.count == 0
