"""CSV files: what their cells mean, and that malformed rows are named, skipped and counted."""

import csv
import gzip
import io
import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree.streams import BadRowError, BadRowsWarning, InputWarning, open_stream
from table_data import (
    assert_same_rows,
    collect,
    read_text,
    write_csv,
    write_text,
)


def test_rows_are_counted_as_they_are_read(tmp_path):
    path = write_text(tmp_path / "data", 'a,target\n"1\n,2",x\n\n3,y\n4,"z\nz"')
    assert open_stream(path, batch=0.5).n_rows == 3
    assert sum(len(y) for _, y in open_stream(path, categorical=["a"])) == 3


# ---------------------------------------------------------------------- what a CSV file may hold
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
    X, _ = read_text("size;target\n1,5;1\n2,5;2\n", categorical=["size"])
    assert X["size"].tolist() == ["1,5", "2,5"]


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
    rows = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    _, y = read_text(f"a,b\n{rows}")
    assert (y.dtype, y[-len(expected) :].tolist()) == (dtype, expected)


def test_the_label_is_named_or_called_target_or_last():
    text = "a,target,b\n1,2,3\n"
    assert read_text(text)[1].tolist() == [2]
    assert read_text(text, target="a")[1].tolist() == [1]
    assert read_text(text.replace("target", "t"))[1].tolist() == [3]
    assert read_text("a, target, b\n1,2,3\n")[1].tolist() == [2]
    frame = pd.DataFrame({"a": [1], "target": [2], "b": [3]})
    assert [open_stream(frame).feature_names, open_stream(frame, target="b").feature_names] == [
        ["a", "b"],
        ["a", "target"],
    ]


def test_kinds_do_not_depend_on_the_size_of_the_batches(tmp_path):
    cells = ["1"] * 400 + ["x"] * 600 + ["2"] * 600
    path = write_csv(tmp_path / "a", columns={"a": cells}, labels=np.arange(1600) % 7)
    for batch in (1, 100, 2000):
        X, _ = collect(open_stream(path, batch=batch))
        assert X["a"].tolist() == cells


values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
texts = values.map(lambda text: f"x{text}x")  # no number, not missing, no space around it
numbers = st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(st.tuples(numbers, texts, texts), max_size=40)  # too few to look like ids


# With line feeds the writer would leave lone carriage returns without quotes.
styles = st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\n", csv.QUOTE_NONNUMERIC)])


@given(rows.filter(bool), st.sampled_from(",;\t|"), styles, st.integers(1, 5))
def test_what_is_written_is_read(rows, delimiter, style, batch):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=style[0], quoting=style[1])
    writer.writerow(["number", 'a\n,;\t|"b', "label"])
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
    "text after a quote": (
        '3,"t"1,0\n',
        None,
        "cannot be split into cells: ',' expected after '\"'",
    ),
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
        X, y = collect(list(stream))
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
    with pytest.warns(BadRowsWarning, match=r"lines 22 to 1,503: .* \(a quote was opened"):
        assert sum(len(y) for _, y in stream) == 1520
    assert stream.bad_rows.first[0].last_line == 1503


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            '"{}",t1,0\n',
            r"lines 2 to 3,002, column 'n': expected a number, got '0,t0,0\\n.{50,65}'\.\.\. \(",
        ),
        ('1,t1,"{}",4\n', r"lines 2 to 3,002, column 4: expected 3 cells, got 4 \("),
    ],
)
def test_what_a_cell_swallowed_is_measured_and_not_shown(row, message, tmp_path):
    content = "n,t,target\n" + row.format("".join(GOOD * 2)) + "".join(GOOD)
    with pytest.raises(BadRowError, match=message) as caught:
        list(open_stream(write_text(tmp_path / "a.csv", content)))
    assert (caught.value.line, caught.value.last_line) == (2, 3002)
    assert caught.value.reason in str(pickle.loads(pickle.dumps(caught.value)))


@pytest.mark.parametrize(("n_rows", "n_bad"), [(1, 1), (10, 2), (990, 2), (1000, 4), (None, 4)])
def test_malformed_rows_after_the_last_one_asked_for_do_not_count(n_rows, n_bad, tmp_path):
    lines = ["x,t,0\n", *GOOD[:9], "1,2\n", *GOOD[9:990], "1,2\n", "1,2\n", *GOOD[990:1000]]
    path = write_text(tmp_path / "a.csv", "n,t,target\n" + "".join(lines))
    for source in (path, open_stream(path, batch=77, on_bad_row="skip")):
        stream = open_stream(source, batch=300, n_rows=n_rows, on_bad_row="skip")
        with pytest.warns(BadRowsWarning) as warned:
            assert sum(len(y) for _, y in stream) == (n_rows or 1000)
        assert (len(warned), stream.bad_rows.count) == (1, n_bad)
        if n_rows:
            assert list(stream.batches(skip_rows=n_rows)) == []  # and no warning again


@pytest.mark.parametrize("action", ["always", "error"])
def test_an_error_does_not_hide_what_was_skipped(action, tmp_path):
    lines = "".join(f"{i},{i % 3}\n1\n" for i in range(9000))
    content = gzip.compress(f"n,target\n{lines}".encode(), mtime=0)
    stream = open_stream(write_text(tmp_path / "a", content[:-20]), on_bad_row="skip")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter(action)
        with pytest.raises(OSError, match="truncated or damaged") as caught:
            list(stream)
    reports = [str(warning.message) for warning in warned] or caught.value.__notes__
    assert [report.split(":")[0] for report in reports] == [
        f"{stream.bad_rows.count:,} malformed rows were skipped"
    ]


def test_a_file_may_be_malformed_throughout(tmp_path):
    stream = open_stream(write_text(tmp_path / "a", "a,b\n" + "1\n" * 2000), on_bad_row="skip")
    with pytest.warns(BadRowsWarning, match="2,000 malformed"):
        assert list(stream) == []


@pytest.mark.parametrize("is_new", [True, False])
def test_text_files_name_the_bytes_that_they_cannot_decode(is_new, tmp_path):
    path = write_malformed(tmp_path / "a.csv", MALFORMED["bytes that are no UTF-8"][0], 1400)
    if not is_new:
        write_text(path, b"# a remark\n" + path.read_bytes())
    read = []
    with path.open(encoding="utf-8") as file:
        if not is_new:  # it has decoded a part already, and so far has to raise its own error
            file.readline()
        words = r"line 1405, column 't'" if is_new else r"a\.csv has bytes after line \d+ that"
        with pytest.raises(ValueError, match=words):
            read.extend(open_stream(file, batch=100))
        assert not file.closed
    n_rows = sum(len(y) for _, y in read)
    assert n_rows == 1401 if is_new else 0 < n_rows < 1401


def test_a_truncated_file_gives_its_rows_and_then_an_error(tmp_path):
    content = gzip.compress(write_csv(tmp_path / "a").read_bytes(), mtime=0)
    path = write_text(tmp_path / "cut.csv.gz", content[: len(content) // 2])
    read = []
    with pytest.raises(
        OSError, match=r"cut.csv.gz is truncated or damaged after line (\d+)"
    ) as error:
        read.extend(open_stream(path, batch=100))
    n_read = sum(len(y) for _, y in read)
    assert n_read > 800
    assert f"after line {n_read + 1} " in str(error.value)
    assert_same_rows(read, stop=n_read)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: a header line"),
        ("\na,b\n1,2\n", "begins with a blank line: a header line"),
        ("a,b\n", "holds a header, but no rows"),
        ("1,2.5\n3,4\n", r"holds only numbers \('1', '2.5'\): put a line with the column names"),
        ("a:b\n1:2\n", "only one column, 'a:b'"),
        ("a,,b\n1,2,3\n", "has no name for column 2"),
        ("a,b,a\n1,2,3\n", "has column 'a' twice"),
        ("a,b\n1,2\n".encode("utf-16"), "is not UTF-8 text"),
        (b"a,gr\xfcn\n1,2\n", r"a name that is not UTF-8, 'gr.udcfcn': save the file as UTF-8"),
        ("a;target\n1,5;0\n?;0\n2;0\n", r"'a' of .* decimal commas, such as '1,5': write them"),
        ("a\ttarget\n2\t-1.000,25\n", r"'target' of .* decimal commas, such as '-1.000,25'"),
        ('"a,b\n1,2\n', "header of .* is malformed: unexpected end of data"),
        (gzip.compress(b"a,b\n", mtime=0)[:12], "is truncated or damaged after line 0"),
        (gzip.compress(b"a,b\n", mtime=0)[:5], "is truncated or damaged after line 0"),
    ],
)
def test_files_that_are_no_tables(content, message, tmp_path):
    path = write_text(tmp_path / "a.csv", content)
    with pytest.raises((ValueError, OSError), match=message):
        list(open_stream(path))


def test_a_file_object_of_the_user_stays_open(tmp_path):
    with write_csv(tmp_path / "a").open("rb") as file:
        assert_same_rows(open_stream(file))
        assert not file.closed


@pytest.mark.parametrize("kind", ["csv", "gzip"])
def test_memory_is_bounded(kind, tmp_path):
    def measure(n_copies):
        header, *lines = write_csv(tmp_path / "a").read_bytes().splitlines(keepends=True)
        content = header + b"".join(lines) * n_copies
        path = write_text(
            tmp_path / "b", gzip.compress(content, 1, mtime=0) if kind == "gzip" else content
        )
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


# ---------------------------------------------------------------------- targets that are numbers
def test_targets_are_numbers_also_if_the_first_thousand_are_whole():
    lines = [f"{i},{i % 7}" for i in range(1500)] + ["0,2.5"]
    text = "\n".join(["a,target", *lines, ""])
    with pytest.raises(BadRowError, match=r"expected a whole number, as in the first rows, got '2"):
        list(open_stream(io.StringIO(text)))
    batches = list(open_stream(io.StringIO(text), task="regression"))
    assert {y.dtype for _, y in batches} == {np.dtype(float)}
    assert batches[-1][1][-1] == 2.5


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("?", "the target is missing"),
        ("many", "expected a number"),
        ("inf", "expected a finite number"),
    ],
)
def test_targets_that_are_no_numbers_are_malformed(cell, words):
    text = f"a,target\n1,2\n2,3\n3,{cell}\n"
    with pytest.raises(BadRowError, match=f"line 4, column 'target': {words}"):
        list(open_stream(io.StringIO(text), task="regression"))


def test_targets_of_every_source_are_numbers():
    X, y = np.zeros((3, 1)), np.array([1, 2, 3])
    frame = pd.DataFrame({"a": [0.0, 0.0, 0.0], "target": y})
    pairs = [({"a": 0.0}, label) for label in y.tolist()]
    for source in ((X, y), frame, pairs, np.column_stack([X, y]), open_stream((X, y))):
        [(_, found)] = open_stream(source, task="regression")
        assert found.dtype == float
        assert found.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="the targets of the array: y must hold numbers"):
        list(open_stream((X, ["a", "b", "c"]), task="regression"))
    with pytest.raises(ValueError, match="task must be"):
        open_stream((X, y), task="ranking")


@pytest.mark.parametrize("depth", [10, 100_000])
def test_nested_json_is_malformed(depth):
    nested = f'{{"a": {"[" * depth}{"]" * depth}, "target": "x"}}'
    text = f'{{"a": 1, "target": "x"}}\n{nested}\n{{"a": 2, "target": "y"}}\n'
    stream = open_stream(io.StringIO(text), on_bad_row="skip")
    with pytest.warns(BadRowsWarning, match="line 2"):
        [(X, _)] = stream
    assert X["a"].tolist() == [1, 2]


@pytest.mark.parametrize("cell", ["1e300", "-9.3e18", "253402300800"])
def test_seconds_beyond_all_dates_are_malformed(cell):
    text = f"when,target\n1709213400,x\n{cell},x\n1709280000,y\n"
    stream = open_stream(io.StringIO(text), time=["when"])
    with pytest.raises(BadRowError, match="line 3, column 'when'"), pytest.warns(InputWarning):
        list(stream)


def test_a_column_may_not_have_the_name_of_a_part_of_a_time():
    text = "when,when: days,target\n2024-01-01,7,x\n2024-01-02,8,y\n"
    with pytest.raises(ValueError, match="'when: days', which is also a part of the time 'when'"):
        list(open_stream(io.StringIO(text)))
