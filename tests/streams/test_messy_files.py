"""Forty files as people have them: each is read for what it is, or refused by what it is."""

import gzip
import io
import json
import sqlite3
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from driftree import DynamicModelTreeClassifier, cli
from driftree.evaluate import Evaluation
from driftree.streams import InputWarning, open_stream

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
    assert "(--task classification takes each for a label)" in result.output
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
    with pytest.raises(ValueError, match=r"holds numbers only .* header=False"):
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
        (model, "is a model of driftree's: driftree.load reads it"),
        (workbook, "is an Excel workbook: save the sheet or table as CSV"),
        (
            lambda path: path.write_bytes(zipped(a="1", b="2")),
            r"is a zip archive of 2 files \('a', 'b'\)",
        ),
        (lambda path: path.write_bytes(b"BZh91AY"), "is compressed by bzip2: unpack it"),
        (lambda path: path.write_bytes(zipped(a="1")[:40]), "zip archive that is cut off"),
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
