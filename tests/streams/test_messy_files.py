"""Forty files as people have them: each is read for what it is, or refused by what it is."""

import gzip
import io
import json
import pickle
import sqlite3
import warnings
import zipfile
import zlib

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from driftree import DynamicModelTreeClassifier, cli
from driftree.evaluate import Evaluation
from driftree.streams import BadRowError, BadRowsWarning, InputWarning, open_stream

N_ROWS = 300
rng = np.random.default_rng(1)
INCOMES = rng.uniform(1000, 90_000, N_ROWS).round(2)
OWNERS = rng.choice(["yes", "no"], N_ROWS)
LABELS = np.where((INCOMES > 45_000) ^ (rng.random(N_ROWS) < 0.05), "granted", "refused")
DAYS = pd.date_range("2024-01-29", periods=N_ROWS, freq="7h")
WORDS = ["loan", "is", "for", "a", "new", "car", "house", "boat", "we", "hope", "soon"]


def table(**columns):
    """Return a table whose last column is the label; others go before it."""
    return pd.DataFrame({"income": INCOMES, "owner": OWNERS, **columns, "granted": LABELS})


def csv_of(frame=None, **more):
    return (table() if frame is None else frame).to_csv(index=False, **more)


def read(content, tmp_path, **options):
    """Return the columns, the labels and the findings of a file."""
    path = tmp_path / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    stream = open_stream(path, batch=N_ROWS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        [(X, y)] = list(stream)
    return X, y, stream.findings


def kinds(findings):
    return {column.name: column.kind for column in findings.columns if column.is_used}


# ---------------------------------------------------------------------- numbers in disguise
@pytest.mark.parametrize(
    "write",
    [
        "{:,.2f}".format,
        "${:,.2f}".format,
        "€ {:.2f}".format,
        "{:.2f} EUR".format,
        "{:.2f}%".format,
        "{:.2f} %".format,
        lambda number: f"(${-number:,.2f})" if number < 0 else f"${number:,.2f}",
        lambda number: f"{number:,.2f}" if number > 9999 else f"{number:.2f}",
    ],
    ids=["thousands", "dollars", "euros", "EUR", "%", " %", "in brackets", "some thousands"],
)
def test_numbers_in_disguise_are_numbers(write, tmp_path):
    numbers = INCOMES.copy()
    numbers[::5] -= 50_000
    text = [write(number) for number in numbers]
    X, _, found = read(csv_of(table(amount=text)), tmp_path)
    np.testing.assert_allclose(X["amount"], numbers)
    [column] = [column for column in found.columns if column.name == "amount"]
    assert (column.kind, column.remark.startswith("as in ")) == ("number", True)


def test_disguise_is_not_guessed_where_it_is_unclear(tmp_path):
    mixed = [f"${i}" if i % 2 else f"€{i}" for i in range(N_ROWS)]
    _, _, found = read(csv_of(table(amount=mixed)), tmp_path, categorical=["amount"])
    assert kinds(found)["amount"] == "category"
    unclear = [f"{i % 9 + 1},{i % 1000:03d}" for i in range(N_ROWS)]
    frame = table(amount=unclear)
    with pytest.raises(ValueError, match=r"'amount' of .* decimal commas, such as"):
        read(csv_of(frame, sep=";"), tmp_path)
    X, _, _ = read(csv_of(frame), tmp_path)  # quoted, in a file with commas: thousands
    assert X["amount"].max() > 1000
    with pytest.raises(ValueError, match="expected a number with %, as in the first rows"):
        read(csv_of(table(rate=["5%"] * (N_ROWS - 1) + ["0.05"])), tmp_path)


def test_codes_with_leading_zeros_are_categories(tmp_path):
    codes = [f"{i % 7:05d}" for i in range(N_ROWS)]
    X, _, found = read(csv_of(table(zip=codes)), tmp_path)
    assert X["zip"].tolist() == codes
    assert "codes with leading zeros" in str(found)
    X, _, _ = read(csv_of(table(zip=codes)), tmp_path, numeric=["zip"])
    assert X["zip"].dtype == float


# ---------------------------------------------------------------------- times
@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("%Y-%m-%d", ["days", "weekday"]),
        ("%Y/%m/%d", ["days", "weekday"]),
        ("%Y-%m-%dT%H:%M:%S", ["days", "hour", "weekday"]),
        ("%Y-%m-%d %H:%M", ["days", "hour", "weekday"]),
        ("%Y-%m-%dT%H:%M:%S+02:00", ["days", "hour", "weekday"]),
        ("%d.%m.%Y", ["days", "weekday"]),
        ("%m/%d/%Y", ["days", "weekday"]),
        ("%d/%m/%Y %H:%M", ["days", "hour", "weekday"]),
        ("%m/%d/%y %I:%M %p", ["days", "hour", "weekday"]),
        ("%d %b %Y", ["days", "weekday"]),
        ("%d-%b-%y", ["days", "weekday"]),
        ("%B %d, %Y, %I:%M %p", ["days", "hour", "weekday"]),
        ("%a, %d %b %Y %H:%M:%S +0200", ["days", "hour", "weekday"]),
        ("%d/%b/%Y:%H:%M:%S +0200", ["days", "hour", "weekday"]),
        ("%H:%M", ["hour"]),
    ],
)
def test_times_become_their_parts(form, parts, tmp_path):
    X, _, found = read(csv_of(table(at=DAYS.strftime(form))), tmp_path)
    assert [name for name in X if name.startswith("at")] == [f"at: {part}" for part in parts]
    assert kinds(found)["at"] == "time"
    if "days" in parts:
        assert X["at: days"][0] == 19751  # days from 1970-01-01 to 2024-01-29
        assert X["at: weekday"][:4].tolist() == ["Monday"] * 4
    if "hour" in parts:
        np.testing.assert_allclose(X["at: hour"], DAYS.hour)


def test_dates_of_an_unclear_order_are_asked_about(tmp_path):
    days = [f"{i % 12 + 1:02d}/{i % 11 + 1:02d}/2024" for i in range(N_ROWS)]
    with pytest.raises(ValueError, match=r"'at' of .* unclear whether the day or the month"):
        read(csv_of(table(at=days)), tmp_path)
    X, _, _ = read(csv_of(table(at=days)), tmp_path, drop=["at"])
    assert list(X) == ["income", "owner"]


def test_a_column_that_is_said_to_be_a_time_must_be_one(tmp_path):
    with pytest.raises(ValueError, match=r"'owner' of .* is named in time, but most"):
        read(csv_of(), tmp_path, time=["owner"])
    for form, example in (("%Y-%m-%d", "2024-01-29"), ("%b %d, %Y", "Jan 29, 2024")):
        for wrong in ("soon", "Marathon 3, 2024", "Feb 30, 2024"):
            days = [*DAYS.strftime(form)[:-1], wrong]
            with pytest.raises(ValueError, match=f"a time such as {example}, got '{wrong}'"):
                read(csv_of(table(at=days)), tmp_path)


# ---------------------------------------------------------------------- ids, prose, constants
@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("customer", [f"C{i:06d}" for i in range(N_ROWS)]),
        ("order_id", list(range(1000, 1000 + N_ROWS))),
        ("userId", rng.permutation(10**6)[:N_ROWS].tolist()),
    ],
)
def test_ids_are_named_and_left_out(name, cells, tmp_path):
    X, _, found = read(csv_of(table(**{name: cells})), tmp_path)
    assert list(X) == ["income", "owner"]
    assert f"left out: {name} (an id, its values are all different; categorical={name}" in str(
        found
    )
    X, _, _ = read(csv_of(table(**{name: cells})), tmp_path, categorical=[name])
    assert X[name].tolist() == list(map(str, cells))


def test_a_number_that_happens_to_differ_is_no_id(tmp_path):
    _, _, found = read(csv_of(table(salary=rng.permutation(10**6)[:N_ROWS])), tmp_path)
    assert kinds(found)["salary"] == "number"


def test_prose_and_constants_are_named(tmp_path):
    prose = [" ".join(rng.choice(WORDS, 6)) for _ in range(N_ROWS)]
    X, _, found = read(csv_of(table(note=prose, land="de")), tmp_path)
    assert X["note"].tolist() == prose
    assert "text: note (prose)" in str(found)
    assert "the same in all of these rows: land" in str(found)


def test_missing_values_are_counted(tmp_path):
    few = ["" if i % 10 == 0 else str(i) for i in range(N_ROWS)]
    _, _, found = read(csv_of(table(age=few)), tmp_path)
    assert "age (10 % missing)" in str(found)


# ---------------------------------------------------------------------- the target
def test_what_is_predicted_is_said(tmp_path):
    frame = table()[["granted", "income", "owner"]]
    _, _, found = read(csv_of(frame), tmp_path)
    assert str(found).startswith("predicting 'owner' (last column; target= for another), 2 labels:")
    _, _, found = read(csv_of(frame), tmp_path, target="granted")
    assert str(found).startswith("predicting 'granted' (named), 2 labels: ")


@pytest.mark.parametrize(
    "target",
    [INCOMES, INCOMES.astype(int), [f"${income:,.0f}" for income in INCOMES]],
    ids=["real", "whole", "currency"],
)
def test_a_number_to_predict_is_noticed(target, tmp_path):
    text = csv_of(table(price=target).drop(columns="granted"))
    _, _, found = read(text, tmp_path)
    assert "is it task=regression?" in str(found)
    _, y, found = read(text, tmp_path, task="regression")
    assert y.dtype == float
    assert "a number from " in str(found)
    path = tmp_path / "prices.csv"
    path.write_text(text)
    result = run("run", path, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "(--categorical price treats each value as a label)" in result.output
    labels = run("run", path, "--out", tmp_path / "labels", "--categorical", "price")
    assert labels.exit_code == 0, labels.output
    assert " labels: " in labels.output
    assert "MAE" in result.output


@pytest.mark.parametrize("labels", [rng.integers(0, 7, N_ROWS), rng.integers(0, 40, N_ROWS) * 10])
def test_labels_that_are_numbers_stay_labels(labels, tmp_path):
    _, y, found = read(csv_of(table(kind=labels).drop(columns="granted")), tmp_path)
    assert y.dtype == np.int64
    assert "label" in str(found)
    assert "regression" not in str(found)


# ---------------------------------------------------------------------- headers and separators
def test_a_missing_header_is_noticed(tmp_path):
    text = csv_of(header=False)
    with pytest.raises(ValueError, match=r"first line of .* looks like a row \('.*header=False"):
        read(text, tmp_path)
    X, y, _ = read(text, tmp_path, header=False)
    assert list(X) == ["x0", "x1"]
    assert len(y) == N_ROWS
    numbers = table(owner=1.5, granted=1)[["income", "owner"]].to_csv(index=False, header=False)
    with pytest.raises(ValueError, match=r"holds only numbers .* header=False"):
        read(numbers, tmp_path)


def test_years_may_be_names_of_columns(tmp_path):
    frame = table().rename(columns={"income": "2023"})
    X, _, _ = read(csv_of(frame), tmp_path)
    assert list(X) == ["2023", "owner"]


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: csv_of(frame, sep=";"),
        lambda frame: csv_of(frame, sep="\t"),
        lambda frame: "\ufeff" + csv_of(frame),
        lambda frame: csv_of(frame).replace("\n", "\r\n"),
        lambda frame: csv_of(frame).replace("yes", '"ja,\nja"'),
        lambda frame: csv_of(frame.rename(columns={"income": "Einkommen in €"})),
        lambda frame: gzip.compress(csv_of(frame).encode(), mtime=0),
    ],
    ids=["semicolons", "tabs", "BOM", "CRLF", "quoted", "unicode", "gzip"],
)
def test_what_was_read_well_is_read_well(change, tmp_path):
    X, y, _ = read(change(table()), tmp_path)
    np.testing.assert_array_equal(next(iter(X.values())), INCOMES)
    assert y.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b,a\n1,2,x\n", "has column 'a' twice: rename one of them$"),
        ("yes,2,yes\nno,3,no\n", "'yes' twice: rename one of them, or read the file with header=F"),
        ("a,b\n1,2\n1,2,3\n", "line 3, column 3: expected 2 cells, got 3"),
        ("a,b\n1,x\n2,\n", "line 3, column 'b': the label is missing"),
        ("a;b\n1,5;x\n2,5;y\n", "decimal commas, such as '1,5'"),
    ],
)
def test_what_was_refused_well_is_refused_well(content, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read(content, tmp_path)


# ---------------------------------------------------------------------- other formats
def json_lines(frame):
    return frame.to_json(orient="records", lines=True)


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        json_lines(table()),
        gzip.compress(json_lines(table()).encode(), mtime=0),
        zipped(**{"loans.csv": csv_of()}),
        zipped(**{"loans.jsonl": json_lines(table()), "__MACOSX/._loans": "x"}),
    ],
    ids=["JSON Lines", "JSON Lines, gzip", "zip", "zip of JSON Lines"],
)
def test_other_formats_are_told_by_their_first_bytes(content, tmp_path):
    X, y, found = read(content, tmp_path)
    np.testing.assert_allclose(X["income"], INCOMES)
    assert y.tolist() == LABELS.tolist()
    assert kinds(found) == {"income": "number", "owner": "category"}


@pytest.mark.parametrize("on_bad_row", ["stop", "skip"])
@pytest.mark.parametrize("form", ["zip", "gzip"])
def test_rows_of_a_damaged_archive_are_not_blamed(form, on_bad_row, tmp_path):
    """Damage that unpacks to other bytes is known by the checksum at the end."""
    text = csv_of(pd.concat([table()] * 40)).encode()
    cut = text.replace(b"yes,", b"yes ", 1)
    if form == "gzip":
        content = gzip.compress(cut, mtime=0)[:-8] + gzip.compress(text, mtime=0)[-8:]
    else:
        content = zipped(a=cut).replace(zip_checksum(cut), zip_checksum(text))
    path = tmp_path / "loans"
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"loans is truncated or damaged .*get the compressed file"):
        list(open_stream(path, on_bad_row=on_bad_row))


def zip_checksum(content):
    return zlib.crc32(content).to_bytes(4, "little")


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "cut.parquet"
    table().to_parquet(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(OSError, match=r"cut\.parquet is truncated or damaged Parquet \("):
        open_stream(path)


def write_table(frame, path, form):
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "jsonl":
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        getattr(frame, f"to_{form}")(path)


@pytest.mark.filterwarnings("ignore::driftree.streams.InputWarning")
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "feather"])
def test_malformed_rows_are_named_and_skipped_in_every_format(form, tmp_path):
    """At their place in the file, whatever the batches."""
    n_rows, bad = 25_000, {12_345: "size", 12_399: "fee", 12_400: "size", 20_000: "y"}
    numbers = np.arange(n_rows) % 7.0
    frame = pd.DataFrame({"size": numbers, "fee": "$5", "y": np.where(numbers > 2, "a", "b")})
    frame.loc[[12_345, 12_400], "size"] = [np.inf, -np.inf]
    frame.loc[12_399, "fee"] = "much"
    frame.loc[20_000, "y"] = None
    path = tmp_path / "rows"
    write_table(frame, path, form)
    unit, first = {"csv": ("line", 2), "jsonl": ("line", 1)}.get(form, ("row", 1))
    read_first = []
    with pytest.raises(BadRowError) as error:
        read_first.extend(y for _, y in open_stream(path, batch=1000))
    assert sum(map(len, read_first)) == 12_345
    where = f"{unit} {12_345 + first}, column 'size': expected a finite number"
    assert where in str(error.value)
    assert pickle.loads(pickle.dumps(error.value)).row == error.value.row
    stream = open_stream(path, batch=1000, on_bad_row="skip")
    with pytest.warns(BadRowsWarning):
        read_all = np.concatenate([y for _, y in stream])
    told = [(row.line - first, row.column) for row in stream.bad_rows.first]
    assert told == list(bad.items())
    assert read_all.tolist() == frame.drop([*bad]).y.tolist()
    for skip, n_bad in ((12_344, 4), (12_350, 4), (24_000, 4)):
        with pytest.warns(BadRowsWarning):
            rest = np.concatenate([y for _, y in stream.batches(skip_rows=skip)])
        assert rest.tolist() == read_all[skip:].tolist()
        assert stream.bad_rows.count == n_bad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, n_bad in ((12_345, 0), (12_346, 1), (15_000, 3)):
            some = open_stream(path, batch=1000, on_bad_row="skip", n_rows=n)
            assert np.concatenate([y for _, y in some]).tolist() == read_all[:n].tolist()
            assert some.bad_rows.count == n_bad


@pytest.mark.filterwarnings("ignore::driftree.streams.InputWarning")
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("row", [0, 150])
def test_a_malformed_row_among_the_first_is_named(form, row, tmp_path):
    frame = table(fee=["$5"] * N_ROWS)
    frame.loc[row, "fee"] = "much"
    write_table(frame, tmp_path / "rows", form)
    with pytest.raises(BadRowError, match=r"rows, (line|row) \d+, column 'fee': expected a number"):
        list(open_stream(tmp_path / "rows"))


def test_numbers_of_a_parquet_file_are_labels_where_that_is_asked(tmp_path):
    table(price=[0.5 + i % 9 for i in range(len(table()))]).to_parquet(tmp_path / "a.parquet")
    _, y = next(iter(open_stream(tmp_path / "a.parquet", target="price", categorical=["price"])))
    assert y[:2].tolist() == ["0.5", "1.5"]


@pytest.mark.filterwarnings("ignore::driftree.streams.BadRowsWarning")
@pytest.mark.parametrize("form", ["parquet", "feather"])
@pytest.mark.parametrize("more", [{}, {"categorical": ["late"]}])
def test_integers_of_a_parquet_file_with_missing_ones_stay_integers(more, form, tmp_path):
    late = pd.array([None, 2**53 + 1, 0] * 100, dtype="Int64")
    write_table(pd.DataFrame({"income": INCOMES, "late": late}), tmp_path / "a", form)
    stream = open_stream(tmp_path / "a", target="late", on_bad_row="skip", **more)
    assert "0 50 %" in str(stream.findings)
    y = np.concatenate([y for _, y in stream])
    assert y.dtype == np.int64
    assert y[:2].tolist() == [2**53 + 1, 0]


@pytest.mark.filterwarnings("ignore::driftree.streams.InputWarning")
@pytest.mark.parametrize(
    ("unit", "numeric", "dtype"),
    [("", ["size"], "object"), ("$", [], "object"), ("", ["size"], "category")],
)
def test_numbers_that_a_parquet_file_has_as_text_are_numbers(unit, numeric, dtype, tmp_path):
    """If written like $5, or if that is asked."""
    sizes = pd.Series([f"{unit}{i % 9}" for i in range(N_ROWS)], dtype=dtype)
    table(size=sizes).to_parquet(tmp_path / "a.parquet")
    X, _ = next(iter(open_stream(tmp_path / "a.parquet", numeric=numeric)))
    assert X["size"].to_pylist()[:3] == [0.0, 1.0, 2.0]


def test_feather_and_parquet_are_read_with_their_types(tmp_path):
    pytest.importorskip("pyarrow")
    frame = table(at=DAYS, fee=["$1,000"] * N_ROWS, order_id=range(N_ROWS), late=True)
    for write in (frame.to_feather, frame.to_parquet):
        write(tmp_path / "written")
        X, y, found = read((tmp_path / "written").read_bytes(), tmp_path)
        names = ["income", "owner", "at: days", "at: hour", "at: weekday", "fee", "late"]
        assert X.column_names == names
        assert X["at: hour"].to_pylist()[:3] == [0, 7, 14]
        assert X["fee"].to_pylist() == [1000] * N_ROWS
        assert y.tolist() == LABELS.tolist()
        assert "left out: order_id" in str(found)
        X, _, _ = read((tmp_path / "written").read_bytes(), tmp_path, drop=["at", "fee"])
        assert X.column_names == ["income", "owner", "late"]


def test_keys_of_json_may_come_later(tmp_path):
    rows = [{"a": 1.5, "y": "n"}, {"b": "x", "a": None, "y": "p"}]
    later = [{"c": float(i), "a": 1.0, "y": "n"} for i in range(1500)]
    content = "\n".join(map(json.dumps, rows + later))
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    [(X, y)] = list(open_stream(path, target="y", batch=2000))
    assert X["b"].tolist()[:2] == [None, "x"]
    np.testing.assert_array_equal(X["c"][1:4], [np.nan, 0, 1])
    assert len(y) == 1502


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"a": [1, 2], "y": "p"}', r"line 3: 'a' holds \[1, 2\]: give plain values"),
        ('{"a": {"b": 1}, "y": "p"}', "line 3: 'a' holds {'b': 1}: give plain"),
        ('{"a": 1, ', "line 3: is not JSON: "),
        ("[1, 2]", r"line 3: is not a JSON object, but \[1, 2\]"),
        ('{"a": 1, "a": 2, "y": "p"}', "line 3: has the key 'a' twice"),
    ],
)
def test_malformed_json_is_named(line, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read('{"a": 1, "y": "n"}\n{"a": 2, "y": "p"}\n' + line, tmp_path)


def sqlite(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table loans (a, b)")
    connection.close()


def model(path):
    learner = DynamicModelTreeClassifier()
    learner.learn_one({"a": 1.0}, "yes")
    learner.save(path)


def workbook(path):
    path.write_bytes(zipped(**{"[Content_Types].xml": "", "xl/workbook.xml": ""}))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (sqlite, "is an SQLite database: export the table as CSV"),
        (model, "is a driftree model: driftree.load reads it"),
        (workbook, "is an Excel workbook: save the sheet or table as CSV"),
        (
            lambda path: path.write_bytes(zipped(a="1", b="2")),
            r"is a zip archive of 2 files \('a', 'b'\)",
        ),
        (lambda path: path.write_bytes(zipped()), "is a zip archive without files"),
        (lambda path: path.write_bytes(b"BZh91AY"), "is compressed by bzip2: unpack it"),
        (lambda path: path.write_bytes(zipped(a="1")[:40]), "truncated or damaged zip archive"),
        (
            lambda path: path.write_bytes(csv_of().encode("utf-16")),
            "is not UTF-8 text, but UTF-16: save it as CSV in UTF-8",
        ),
        (lambda path: path.write_text(table().to_json(orient="records")), "is a JSON array"),
        (lambda path: pd.to_pickle(table(), path), "is a pickle"),
        (lambda path: path.write_text("<!DOCTYPE html>\n<p>"), "is a web page"),
    ],
)
def test_what_is_no_table_is_refused_by_what_it_is(write, words, tmp_path):
    write(tmp_path / "file")
    with pytest.raises((ValueError, OSError), match=words):
        open_stream(tmp_path / "file")


# ---------------------------------------------------------------------- told
def test_findings_are_one_warning(tmp_path):
    path = tmp_path / "loans.csv"
    path.write_text(csv_of(table(fee="$1,000", order_id=range(N_ROWS))))
    stream = open_stream(path, batch=10)
    with pytest.warns(InputWarning) as caught:
        list(stream)
    list(stream)  # and not again
    assert len(caught) == 1
    assert caught[0].filename == __file__
    lines = str(caught[0].message).splitlines()
    assert lines[0] == f"{path}, by its first {N_ROWS} rows:"
    assert lines[2] == "numbers: income, fee (as in $1,000); categories: owner"


def test_tables_in_memory_stay_as_they_are_but_are_told_of():
    frame = table(fee="$1,000", at=DAYS.strftime("%Y-%m-%d"), when=DAYS)
    with pytest.warns(InputWarning, match=r"(?s)fee \(numbers as text, .*at \(times as text"):
        [(X, _)] = list(open_stream(frame))
    pd.testing.assert_frame_equal(X, frame.drop(columns="granted"))


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, list(map(str, arguments)))


def test_a_run_says_and_keeps_what_it_found(tmp_path):
    path = tmp_path / "loans.csv"
    prose = [" ".join(rng.choice(WORDS, 6)) for _ in range(N_ROWS)]
    path.write_text(csv_of(table(fee=[f"{i},000" for i in range(1, N_ROWS + 1)], note=prose)))
    out = tmp_path / "out"
    result = run("run", path, "--out", out, "--drop", "owner")
    assert result.exit_code == 0, result.output
    first, second, third = result.output.splitlines()[:3]
    assert first.startswith("predicting 'granted' (last column; --target for another), 2 labels: ")
    assert second == "numbers: income, fee (as in 1,000)"
    assert third == "left out: note (prose; --text note learns its words)"
    told = json.loads((out / "summary.json").read_text())["input"]
    assert told["target"]["column"] == "granted"
    assert sum(told["target"]["shares"].values()) == pytest.approx(1)
    assert [column["kind"] for column in told["columns"]] == ["number", "number", "text"]
    assert "left out: note" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("first", ["31,van,yes", "31,yes,yes"])
def test_the_shell_is_told_its_own_options(first, tmp_path):
    path = tmp_path / "cars.csv"
    path.write_text("\n".join([first, *["40,bus,no", "31,van,yes"] * 100]))
    result = run("run", path, "--out", tmp_path / "out")
    assert (result.exit_code, "--no-header" in result.output) == (2, True), result.output


@pytest.mark.parametrize("source", ["file", "-"])
def test_too_few_rows_are_told_before_anything_is_learnt(source, tmp_path, monkeypatch):
    path = tmp_path / "few.csv"
    path.write_text(csv_of(table()[:20]))
    if source == "file":
        monkeypatch.setattr(Evaluation, "take", lambda *_: pytest.fail("it learns"))
        result = run("run", path, "--out", tmp_path / "out")
        assert "has 20 rows, no more than one batch" in result.output
    else:
        runner = CliRunner(env={"COLUMNS": "200"})
        arguments = ["run", "-", "--out", str(tmp_path / "out")]
        result = runner.invoke(cli.app, arguments, input=path.read_bytes())
        assert "no more rows than one batch" in result.output
    assert result.exit_code == 2


def test_numbers_on_standard_input_are_asked_about(tmp_path):
    text = csv_of(table(price=INCOMES.astype(int)).drop(columns="granted"))
    runner = CliRunner(env={"COLUMNS": "200"})
    arguments = ["run", "-", "--out", str(tmp_path / "out"), "--batch", "100"]
    result = runner.invoke(cli.app, arguments, input=text.encode())
    assert result.exit_code == 2
    assert "the target looks like a number" in result.output
    result = runner.invoke(cli.app, [*arguments, "--task", "regression"], input=text.encode())
    assert result.exit_code == 0, result.output
    assert result.output.startswith("predicting 'price' (last column; --target for another), a num")


# ---------------------------------------------------------------------- more files, as they come
MONEY = [f"{income:,.2f}" for income in INCOMES]


@pytest.mark.parametrize("mark", ["'", "\u2019", " ", "\u00a0", "\u202f"])
def test_thousands_may_stand_apart_in_other_ways(mark, tmp_path):
    X, _, found = read(csv_of(table(fee=[text.replace(",", mark) for text in MONEY])), tmp_path)
    np.testing.assert_allclose(X["fee"], INCOMES)
    assert "fee (as in " in str(found)


def test_negative_numbers_may_have_a_typographers_sign_or_brackets(tmp_path):
    for write in ("\u2212{}".format, "({})".format):
        cells = [write(i) if i % 3 == 0 else str(i) for i in range(1, N_ROWS + 1)]
        X, _, _ = read(csv_of(table(change=cells)), tmp_path)
        assert X["change"][:3].tolist() == [1, 2, -3]


@pytest.mark.parametrize(
    "swap", [{",": ".", ".": ","}, {",": " ", ".": ","}], ids=["1.234,5", "1 234,5"]
)
@pytest.mark.parametrize("unit", ["", " €", "%"])
def test_decimal_commas_are_seen_behind_thousands_and_before_units(swap, unit, tmp_path):
    cells = [text.translate(str.maketrans(swap)) + unit for text in MONEY]
    with pytest.raises(ValueError, match=r"'fee' of .* decimal commas, such as"):
        read(csv_of(table(fee=cells)), tmp_path)


def test_units_are_told_of_and_read_where_that_is_asked(tmp_path):
    weights = rng.uniform(40, 100, N_ROWS).round(1)
    text = csv_of(table(weight=[f"{weight} kg" for weight in weights]))
    X, _, found = read(text, tmp_path)
    assert X["weight"].dtype == object
    assert f"weight (numbers with a unit, as in {weights[0]} kg, " in str(found)
    X, _, _ = read(text, tmp_path, numeric=["weight"])
    np.testing.assert_array_equal(X["weight"], weights)
    mixed = csv_of(table(weight=[f"{w} {'kg' if w > 70 else 'lb'}" for w in weights]))
    with pytest.raises(ValueError, match="expected a number, got"):
        read(mixed, tmp_path, numeric=["weight"])


@pytest.mark.parametrize("cell", ["NULL", "None", "n/a", "N/A", "#N/A", "<NA>", "\\N"])
def test_what_programs_write_for_missing_is_missing(cell, tmp_path):
    cells = [cell if i % 4 == 0 else str(i) for i in range(N_ROWS)]
    X, _, found = read(csv_of(table(age=cells)), tmp_path)
    assert np.isnan(X["age"]).sum() == N_ROWS / 4
    assert "age (25 % missing)" in str(found)


def test_space_around_cells_does_not_count(tmp_path):
    X, y, found = read(csv_of().replace(",", ", ").replace("\n", " \n"), tmp_path)
    assert set(X["owner"]) == {"yes", "no"}
    assert y.tolist() == LABELS.tolist()
    assert set(found.target.shares) == {"granted", "refused"}


@pytest.mark.parametrize("sep", [",", ";"])
def test_a_separator_at_the_end_of_each_line_is_no_column(sep, tmp_path):
    text = csv_of(sep=sep).replace("\n", f"{sep}\n")
    X, y, found = read(text, tmp_path)
    assert list(X) == ["income", "owner"]
    assert y.tolist() == LABELS.tolist()
    assert "left out: column 4 (no name, no values)" in str(found)
    with pytest.raises(ValueError, match=r"column 'column 4' of .* has no name in the header"):
        read(text.replace(f"{sep}\n", f"{sep}x\n").replace(f"{sep}x", sep, 1), tmp_path)


def test_an_index_that_pandas_wrote_is_left_out(tmp_path):
    X, _, found = read(table().to_csv(), tmp_path)
    assert list(X) == ["income", "owner"]
    assert "left out: index (an id, " in str(found)
    X, _, _ = read(table().set_index(DAYS.strftime("%Y-%m-%d %H:%M")).to_csv(), tmp_path)
    assert list(X)[:3] == ["index: days", "index: hour", "index: weekday"]


def test_the_index_in_a_parquet_file_is_told_of_and_kept_where_that_is_asked(tmp_path):
    pytest.importorskip("pyarrow")
    table().set_index("income").to_parquet(tmp_path / "written")
    content = (tmp_path / "written").read_bytes()
    X, _, found = read(content, tmp_path)
    assert X.column_names == ["owner"]
    assert "left out: income (the index of a pandas frame; categorical=income" in str(found)
    X, y, _ = read(content, tmp_path, numeric=["income"])
    assert (set(X.column_names), y.tolist()) == ({"income", "owner"}, LABELS.tolist())
    _, y, _ = read(content, tmp_path, target="income")
    np.testing.assert_array_equal(y, INCOMES)


@pytest.mark.parametrize("cells", [[[1, 2]] * N_ROWS, pd.to_timedelta(np.arange(N_ROWS), "h")])
def test_what_cannot_be_a_feature_is_named_before_anything_is_read(cells, tmp_path):
    pytest.importorskip("pyarrow")
    table(odd=cells).to_parquet(tmp_path / "written")
    content = (tmp_path / "written").read_bytes()
    with pytest.raises(ValueError, match=r"column 'odd' of .* or name the column in drop"):
        read(content, tmp_path)
    X, _, _ = read(content, tmp_path, drop=["odd"])
    assert X.column_names == ["income", "owner"]


def test_dates_without_signs_are_times_if_that_is_said(tmp_path):
    text = csv_of(table(day=DAYS.strftime("%Y%m%d")))
    X, _, found = read(text, tmp_path)
    assert kinds(found)["day"] == "number"
    X, _, _ = read(text, tmp_path, time=["day"])
    assert [name for name in X if name.startswith("day")] == ["day: days", "day: weekday"]
    assert X["day: days"][0] == 19751


@pytest.mark.parametrize("per_second", [1, 1000])
def test_seconds_since_1970_are_times_if_that_is_said(per_second, tmp_path):
    seconds = (DAYS - pd.Timestamp("1970-01-01")) // pd.Timedelta(seconds=1)
    X, _, _ = read(csv_of(table(at=seconds * per_second)), tmp_path, time=["at"])
    assert X["at: days"][0] == 19751
    np.testing.assert_allclose(X["at: hour"], DAYS.hour)


def test_codes_with_leading_zeros_stay_labels_as_they_are(tmp_path):
    codes = [f"{i % 3:03d}" for i in range(N_ROWS)]
    _, y, _ = read(csv_of(table(code=codes).drop(columns="granted")), tmp_path)
    assert y.tolist() == codes


@pytest.mark.parametrize(
    "target",
    [[f"C{i}" for i in range(N_ROWS)], DAYS.strftime("%Y-%m-%d %H:%M")],
    ids=["ids", "times"],
)
@pytest.mark.parametrize("source", ["file", "-"])
def test_a_target_that_hardly_comes_twice_is_asked_about(target, source, tmp_path):
    text = csv_of(table(which=target).drop(columns="granted"))
    _, _, found = read(text, tmp_path)
    assert "hardly any comes twice: is it the target?" in str(found)
    assert found.is_surprising
    path = tmp_path / "loans.csv"
    path.write_text(text)
    words = ["run", str(path) if source == "file" else "-", "--out", str(tmp_path / "out")]
    runner = CliRunner(env={"COLUMNS": "200"})
    result = runner.invoke(cli.app, [*words, "--batch", "100"], input=text.encode())
    assert result.exit_code == 2
    assert "'which' (last column) takes 300 different values" in result.output
    named = [*words, "--batch", "100", "--target", "which", "--categorical", "which"]
    result = runner.invoke(cli.app, named, input=text.encode())
    assert result.exit_code == 0, result.output


def test_labels_that_look_like_numbers_may_be_said_to_be_categories(tmp_path):
    path = tmp_path / "loans.csv"
    path.write_text(csv_of(table(kind=["1", "2", "x"] * 100).drop(columns="granted")))
    result = run("run", path, "--out", tmp_path / "out")
    assert "name the column in --categorical" in result.output
    result = run("run", path, "--out", tmp_path / "out", "--categorical", "kind", "--overwrite")
    assert (result.exit_code, "3 labels: 1 33 %" in result.output) == (0, True), result.output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("'a','b'\n'1','x'\n", "names in single quotes"),
        ("@relation loans\n@data\n", "is an ARFF file"),
        ('{"a": {"b": 1}}\n', "line 1: 'a' holds {'b': 1}: give plain"),
        ('{}\n{"a": 1, "y": 2}\n', "line 1: the object has no keys"),
        (zipped(a=gzip.compress(csv_of().encode())), "is compressed, too: unpack it"),
        (csv_of(table(city="München")).encode("latin-1"), r"'M\\xfcnchen' is not UTF-8"),
        ("Loans of 2024,,\na,b,c\n1,2,x\n", "has no name for column 2"),
    ],
)
def test_other_files_are_refused_by_what_they_are(content, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read(content, tmp_path)


def test_nothing_is_said_of_columns_that_no_row_has(tmp_path):
    path = tmp_path / "loans.csv"
    path.write_text("a,b,c\n" + "1,x\n" * 200)
    result = run("run", path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "predicting" not in result.output
    assert "expected 3 cells, got 2" in result.output
    path.write_text(csv_of())
    result = run("run", path, "--out", tmp_path / "out", "--drop", "owner,income")
    assert f"no column of {path} is left to learn from" in " ".join(result.output.split())


def test_a_zip_with_an_unknown_compression_is_refused(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("table.csv", csv_of())
    content = bytearray(packed.getvalue())
    content[8] = content[content.rfind(b"PK\x01\x02") + 10] = 99
    with pytest.raises(ValueError, match="zip archive that cannot be unpacked"):
        read(bytes(content), tmp_path)
