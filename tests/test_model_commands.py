"""A model in the shell: run leaves one, and predict, explain, learn and report take it."""

import csv
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import driftree
from driftree import (
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    cli,
)
from driftree.evaluate import prequential
from driftree.evaluate.known_rows import KnownRows
from driftree.streams import open_stream
from driftree.streams.datasets import SAMPLES, sample_lines

ROOT = Path(__file__).parent.parent


def run(*arguments, **more):
    runner = CliRunner(env={"COLUMNS": "120"})
    return runner.invoke(cli.app, list(map(str, arguments)), **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with samples, and models that `driftree run` has left."""
    folder = tmp_path_factory.mktemp("models")
    for name in SAMPLES:
        (folder / f"{name}.csv").write_text("".join(sample_lines(name, 1500)))
        options = ["--text", "message"] if name == "messages" else []
        result = run("run", folder / f"{name}.csv", "--out", folder / name, *options)
        assert result.exit_code == 0, result.output
        assert "model.dmt" in result.output
    return folder


def table_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_predictions_are_those_of_the_model(folder):
    result = run("predict", folder / "loans/model.dmt", folder / "loans.csv")
    rows = table_of(result.stdout)
    assert len(rows) == 1500
    assert list(rows[0]) == ["prediction", "P(no)", "P(yes)"]
    model = driftree.load(folder / "loans/model.dmt")
    with pytest.warns(driftree.streams.InputWarning):
        [(X, y)] = list(open_stream(folder / "loans.csv", batch=1500))
    expected = model.predict_proba_many(X)["yes"]
    np.testing.assert_allclose([float(row["P(yes)"]) for row in rows], expected)
    is_right = [row["prediction"] == label for row, label in zip(rows, y, strict=True)]
    assert np.mean(is_right[1000:]) > 0.8  # in the middle the rule has changed


def write_rows(frame, folder, form):
    path = folder / f"rows.{form}"
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_may_come_in_any_format_order_and_number(folder, tmp_path, form):
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv(folder / "loans.csv", nrows=3)[["owner", "income", "age", "applied"]]
    path = write_rows(frame, tmp_path, form)
    result = run("predict", folder / "loans/model.dmt", path)
    assert result.exit_code == 0, result.output
    assert "lacks 'purpose': missing in all rows" in result.stderr
    model = driftree.load(folder / "loans/model.dmt")
    reader = KnownRows(model)
    names = ["owner", "income", "age", "applied"]
    rows = [
        reader.row({name: "" if pd.isna(row[name]) else str(row[name]) for name in names})
        for row in frame.to_dict("records")
    ]
    got = [float(row["P(no)"]) for row in table_of(result.stdout)]
    np.testing.assert_allclose(got, [model.predict_proba_one(row)["no"] for row in rows])


@pytest.mark.parametrize("loss", ["gaussian", "quantile"])
@pytest.mark.parametrize("make", [DynamicModelTreeRegressor, DynamicModelForestRegressor])
def test_numbers_are_predicted_from_any_columns(make, loss, tmp_path):
    X = np.random.default_rng(1).normal(size=(300, 3))
    columns = dict(zip("abc", X.T, strict=True))
    model = make(loss=loss).partial_fit({name: columns[name] for name in "ab"}, X[:, 0])
    model.learn_many(columns, X[:, 0])
    model.save(tmp_path / "model.dmt")
    for names in ("bca", "ca", "b"):
        rows = [{name: float(columns[name][i]) for name in names} for i in range(20)]
        lines = [",".join(map(str, row.values())) for row in rows]
        (tmp_path / "rows.csv").write_text("\n".join([",".join(names), *lines]))
        result = run("predict", tmp_path / "model.dmt", tmp_path / "rows.csv")
        assert result.exit_code == 0, result.output
        got = [float(row["prediction"]) for row in table_of(result.stdout)]
        np.testing.assert_allclose(got, [model.predict_one(row) for row in rows])


def test_numbers_come_with_intervals_and_words_are_counted(folder, tmp_path):
    result = run("predict", folder / "rents/model.dmt", folder / "rents.csv")
    rows = table_of(result.stdout)
    assert list(rows[0]) == ["prediction", "low", "high"]
    assert all(float(row["low"]) < float(row["prediction"]) < float(row["high"]) for row in rows)
    path = tmp_path / "some.csv"
    path.write_text("message,length\nwin a free prize,16\nsee you at lunch,16\n")
    out = tmp_path / "out.csv"
    model = folder / "messages/model.dmt"
    result = run("predict", model, path, "--text", "message", "--out", out)
    assert result.exit_code == 0, result.output
    assert [row["prediction"] for row in table_of(out.read_text())] == ["yes", "no"]
    assert {one.name for one in tmp_path.iterdir()} == {"some.csv", "out.csv"}


def test_levels_and_labels_of_python_are_found_in_text(tmp_path):
    model = DynamicModelTreeClassifier(categorical=["zip"])
    for i in range(300):
        model.learn_one({"zip": i % 3, "late": i % 2 == 0, 7: float(i)}, i % 2 == 0)
    model.save(tmp_path / "model.dmt")
    path = tmp_path / "rows.csv"
    path.write_text("zip,late,7,y\n1,True,5,True\n2,False,6,False\n")
    result = run("predict", tmp_path / "model.dmt", path)
    assert [row["prediction"] for row in table_of(result.stdout)] == ["True", "False"]
    assert run("learn", tmp_path / "model.dmt", path).exit_code == 0
    again = driftree.load(tmp_path / "model.dmt")
    assert again.classes_.tolist() == [True, False] or again.classes_.tolist() == [False, True]
    assert (again.n_rows_seen_, again._tree.encoder.names.keys()) == (302, {"zip", "late", 7})


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_levels_and_labels_are_found_in_any_spelling(tmp_path, form):
    """An array has 1.0 where a file has 1, and JSON has true for True."""
    pd = pytest.importorskip("pandas")
    zips = np.arange(300) % 3
    frame = pd.DataFrame({"zip": zips, "late": np.arange(300) % 2 == 0, "old": zips == 1})
    X, y = frame[["zip", "late"]], frame["old"]
    model = DynamicModelTreeClassifier(categorical=["zip"])
    model.learn_many({"zip": zips.astype(float)}, y)
    for row, label in zip(X.to_dict("records"), y.tolist(), strict=True):
        model.learn_one(row, label)
    model.save(tmp_path / "model.dmt")
    path = write_rows(frame, tmp_path, form)
    rows = table_of(run("predict", tmp_path / "model.dmt", path).stdout)
    expected = [model.predict_proba_one(row)[True] for row in X.to_dict("records")]
    np.testing.assert_allclose([float(row["P(True)"]) for row in rows], expected)
    learnt = run("learn", tmp_path / "model.dmt", path, "--target", "old")
    assert learnt.exit_code == 0, learnt.output
    again = driftree.load(tmp_path / "model.dmt")
    assert again.classes_.tolist() == [False, True]
    assert [set(codes) for codes in again._tree.encoder.levels] == [{0.0, 1.0, 2.0}, {False, True}]


@pytest.mark.parametrize("word", [str, lambda truth: str(truth).lower()])
def test_text_that_means_true_is_found_in_any_spelling(tmp_path, word):
    """A model that learnt CSV has the text True, where JSON has true, and R has TRUE."""
    model, path = DynamicModelTreeClassifier(), tmp_path / "model.dmt"
    truths = np.random.default_rng(1).uniform(size=300) < 0.5
    for truth in truths.tolist():
        model.learn_one({"late": word(truth), "car": "van"}, word(not truth))
    model.save(path)
    (tmp_path / "rows.jsonl").write_text('{"late": true, "old": false}\n' * 3)
    (tmp_path / "rows.csv").write_text("late,old\nTrue,False\ntrue,false\nTRUE,FALSE\n")
    for rows in ("rows.jsonl", "rows.csv"):
        found = table_of(run("predict", path, tmp_path / rows).stdout)
        expected = [model.predict_proba_one({"late": word(True)})[word(True)]] * 3
        np.testing.assert_allclose([float(row[f"P({word(True)})"]) for row in found], expected)
    why = run("explain", path, '{"late": true}', "--target", "TRUE").output
    assert f"late = '{word(True)}'" in why
    for rows in ("rows.jsonl", "rows.csv"):
        assert run("learn", path, tmp_path / rows, "--target", "old").exit_code == 0
    again = driftree.load(path)
    assert set(again.classes_) == {word(False), word(True)}
    assert set(again._tree.encoder.levels[0]) == {word(False), word(True)}


def test_a_label_is_named_as_in_json(tmp_path):
    model = DynamicModelTreeClassifier()
    for i in range(300):
        model.learn_one({"age": float(i % 30), "late": i % 2 == 0}, i % 2 == 0)
    model.save(tmp_path / "model.dmt")
    row = ["explain", tmp_path / "model.dmt", '{"age": 3, "late": true}', "--target"]
    assert "late were False instead of True" in run(*row, "false").output
    assert "choose one of True, False\n" in run(*row, "no").output


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["age=40", "income=$80,000", "owner=no"], "Prediction: yes"),
        (['{"age": 40, "income": 20000, "owner": "no"}'], "Prediction: no"),
        (["income=20,000", "owner=no", "applied=2024-02-01 09:30"], "applied: hour = 9.5"),
    ],
)
def test_a_row_is_explained(folder, row, words):
    result = run("explain", folder / "loans/model.dmt", *row)
    assert result.exit_code == 0, result.output
    assert words in result.output


def test_what_would_have_to_change_is_said(folder):
    row = ["age=40", "income=20,000", "owner=no"]
    model = folder / "loans/model.dmt"
    result = run("explain", model, *row, "--target", "yes", "--fixed", "age,owner")
    assert re.search(r"It would be 'yes' .* if income were", result.output), result.output
    assert "there is no label 'maybe'" in run("explain", model, *row, "--target", "maybe").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "{model}", "aeg=3"], "the model has no feature 'aeg': it knows 'applied'"),
        (["explain", "{model}", "age=old"], "age=old: expected a number, got 'old'"),
        (["explain", "{model}", "age=3", "age=4"], "'age' is given twice, as '3' and '4'"),
        (["explain", "{model}", "age"], "a row is name=value for each feature, or one JSON object"),
        (["explain", "{model}", '{"age": '], "the row is not JSON"),
        (["explain", "{model}", "age=3", "--fixed", "age"], "--fixed is for another prediction"),
        (["predict", "{model}", "{rents}"], "has none of the columns that the model knows"),
        (["predict", "{loans}", "{loans}"], "not a model file"),
        (["predict", "{model}", "nowhere.csv"], "there is no file 'nowhere.csv': give a CSV, JSON"),
        (["learn", "{model}", "."], "'.' is not a regular file: give a CSV"),
        (["learn", "{model}", "{loans}", "--out", "no/model.dmt"], "a folder that exists"),
        (["learn", "{model}", "{loans}", "--target", "age"], "'age' (named) is a feature of the m"),
        (["run", "{loans}", "--param", "max_nodes"], "--param must be name=value"),
        (["run", "{loans}", "--param", "max_node=3"], "there is no parameter of dmt 'max_node'"),
        (["run", "{loans}", "--param", "max_nodes=0"], "max_nodes must be from 1"),
        (["run", "{loans}", "--model", "efdt", "--param", "a=1"], "only driftree's own"),
        (["data", "sample", "lones"], "there is no sample 'lones'"),
    ],
)
def test_a_mistake_is_one_line(folder, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    places = {"model": "loans/model.dmt", "loans": "loans.csv", "rents": "rents.csv"}
    names = {name: str(folder / place) for name, place in places.items()}
    # A row of JSON has braces, too.
    result = run(*(names.get(one.strip("{}"), one) for one in arguments))
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert not result.stdout.startswith("prediction")


def test_learning_goes_on_as_in_python(folder, tmp_path):
    path = tmp_path / "model.dmt"
    path.write_bytes((folder / "loans/model.dmt").read_bytes())
    model = driftree.load(path)
    result = run("learn", path, folder / "loans.csv", "--target", "granted")
    assert result.exit_code == 0, result.output
    assert "1,500 rows learnt, 3,000 in all" in result.output
    assert result.output.startswith("predicting 'granted' (named), 2 labels")
    with pytest.warns(driftree.streams.InputWarning):
        batches = list(open_stream(folder / "loans.csv", target="granted"))
    for X, y in batches:
        model.learn_many(X, y)
    x = {"age": 40.0, "income": 20_000.0, "owner": "no"}
    assert driftree.load(path).predict_proba_one(x) == model.predict_proba_one(x)


def test_advice_about_malformed_rows_can_be_followed(tmp_path):
    model = DynamicModelTreeClassifier()
    for i in range(20):
        model.learn_one({"age": float(i)}, "yes" if i % 2 else "no")
    model.save(tmp_path / "model.dmt")
    (tmp_path / "rows.csv").write_text("age,target\n1,yes\nold,no\n2,no\n")
    files = tmp_path / "model.dmt", tmp_path / "rows.csv"
    assert run("predict", *files).stderr.endswith("got 'old' (fix the row)\n")
    refused = run("learn", *files)
    assert refused.stderr.endswith("got 'old' (fix the row, or read with --on-bad-row skip)\n")
    skipped = run("learn", *files, "--on-bad-row", "skip")
    assert skipped.exit_code == 0, skipped.output
    assert "1 malformed rows were skipped, the first:" in skipped.stderr
    assert "Warning" not in skipped.output
    assert "2 rows learnt, 22 in all" in skipped.output


def test_what_is_refused_leaves_the_file_as_it_was(folder, tmp_path):
    path = tmp_path / "model.dmt"
    path.write_bytes((folder / "loans/model.dmt").read_bytes())
    before = path.read_bytes()
    bad = tmp_path / "bad.csv"
    bad.write_text((folder / "loans.csv").read_text() + "half a row\n")
    assert run("learn", path, bad, "--target", "granted").exit_code == 2
    (tmp_path / "model.dmt.journal").mkdir()
    result = run("learn", path, folder / "loans.csv", "--target", "granted")
    assert (result.exit_code, path.read_bytes()) == (2, before)
    assert "is served" in result.stderr


def test_a_report_of_a_model_needs_no_rows(folder, tmp_path):
    out = tmp_path / "page.html"
    result = run("report", folder / "loans/model.dmt", "--out", out, "--title", "Loans")
    assert result.exit_code == 0, result.output
    assert "<h1>Loans</h1>" in out.read_text(encoding="utf-8")
    assert f"{out}: 1,500 rows" in result.output


def test_parameters_reach_the_learner(folder, tmp_path):
    options = ["--param", "max_nodes=1", "--param", "keep_history=false", "--param", "loss=student"]
    result = run("run", folder / "rents.csv", "--out", tmp_path, *options)
    assert result.exit_code == 0, result.output
    model = driftree.load(tmp_path / "model.dmt")
    assert isinstance(model, DynamicModelTreeRegressor)
    assert (model.max_nodes, model.keep_history, model.loss) == (1, False, "student")
    told = json.loads((tmp_path / "summary.json").read_text())["settings"]["parameters"]
    assert told == [["max_nodes", 1], ["keep_history", False], ["loss", "student"]]


def test_a_threshold_and_weights_hold_from_the_run_to_the_predictions(folder, tmp_path):
    threshold = {"recall": 0.9, "positive": "yes"}
    options = ["--param", "class_weight=balanced", "--param", f"threshold={json.dumps(threshold)}"]
    result = run("run", folder / "loans.csv", "--out", tmp_path, *options)
    assert result.exit_code == 0, result.output
    model = driftree.load(tmp_path / "model.dmt")
    assert (model.class_weight, model.threshold) == ("balanced", threshold)
    table = table_of(run("predict", tmp_path / "model.dmt", folder / "loans.csv").stdout)
    labels = [row["prediction"] for row in table]
    chances = [float(row["P(yes)"]) for row in table]
    assert labels == ["yes" if chance >= model.threshold_ else "no" for chance in chances]
    assert "yes" in labels
    assert model.threshold_ != 0.5


def test_a_learner_of_others_leaves_no_model(folder, tmp_path):
    assert run("run", folder / "loans.csv", "--model", "majority", "--out", tmp_path).exit_code == 0
    assert not (tmp_path / "model.dmt").exists()


def commands_in(page):
    """Return the driftree commands in the shell blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("driftree ")]


def test_the_commands_of_the_readme_can_be_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = commands_in("README.md")
    assert {shlex.split(one)[1] for one in commands} >= {
        "data",
        "run",
        "predict",
        "explain",
        "learn",
        "report",
    }
    for command in commands:
        before, _, into = command.partition(" > ")
        result = run(*shlex.split(before)[1:])
        assert result.exit_code == 0, f"{command}: {result.output}"
        if into:
            Path(into).write_text(result.stdout)


def test_labels_that_are_new_to_a_model_are_told(folder, tmp_path):
    rows = (folder / "loans.csv").read_text().splitlines()[:20]
    (tmp_path / "rows.csv").write_text("\n".join([rows[0], *(row + "es" for row in rows[1:])]))
    told = ["learn", folder / "loans/model.dmt", "--out", tmp_path / "more.dmt"]
    assert "new labels" not in run(*told, folder / "loans.csv").output
    result = run(*told, tmp_path / "rows.csv")
    assert (result.exit_code, "new labels: 'noes', 'yeses'" in result.output) == (0, True)


def test_columns_are_new_to_a_model_only_where_that_is_wanted(folder, tmp_path):
    path, rows = tmp_path / "model.dmt", tmp_path / "rows.csv"
    path.write_bytes((folder / "loans/model.dmt").read_bytes())
    lines = (folder / "loans.csv").read_text().splitlines()
    rows.write_text(
        "\n".join(f"{'car' if i == 0 else 'van'},{line}" for i, line in enumerate(lines))
    )
    told = ["learn", path, rows, "--target", "granted", "--out", tmp_path / "more.dmt"]
    result = run(*told, "--drop", "car")
    assert (result.exit_code, "new to the model" in result.output) == (0, False), result.output
    assert "car" not in driftree.load(tmp_path / "more.dmt")._fitted.encoder.feature_names
    result = run(*told)
    assert "new to the model: 'car'" in result.output
    result = run(*told, "--drop", "applied")
    assert "drop names 'applied', which is a feature of the model" in result.output
    result = run(*told, "--drop", "cra")
    assert (result.exit_code, "drop names 'cra'" in result.output) == (2, True)


@pytest.fixture(scope="module")
def drifting(tmp_path_factory):
    """Return a CSV file whose rule changes at row 24,000."""
    rng = np.random.default_rng(1)
    income, owner = rng.uniform(0, 90, 32_000), rng.random(32_000) < 0.5
    is_late = np.arange(32_000) >= 24_000
    granted = rng.normal(income, 8) > np.where(is_late & owner, 65, 40)
    path = tmp_path_factory.mktemp("drifting") / "loans.csv"
    rows = zip(income, np.where(owner, "yes", "no"), np.where(granted, "yes", "no"), strict=True)
    path.write_text("income,owner,granted\n" + "".join(f"{a:.1f},{b},{c}\n" for a, b, c in rows))
    return path


@pytest.mark.parametrize("source", ["file", "-"])
def test_a_run_says_which_drifts_it_noticed(source, drifting, tmp_path):
    heard, out = tmp_path / "heard.jsonl", tmp_path / "out"
    hook = f"cat >> {shlex.quote(str(heard))}; echo >> {shlex.quote(str(heard))}"
    words = ["run", str(drifting) if source == "file" else "-", "--on-drift", hook]
    runner = CliRunner(env={"COLUMNS": "300"})
    result = runner.invoke(cli.app, [*words, "--out", str(out)], input=drifting.read_bytes())
    assert result.exit_code == 0, result.output
    told = json.loads((out / "summary.json").read_text())["drifts"]["dmt"]
    assert [json.loads(line) for line in heard.read_text().splitlines()] == told
    [drift] = told
    assert 24_000 < drift["n_rows"] < 32_000
    assert abs(drift["since"] - 24_000) <= 1000
    said = result.output.partition("Detected drifts:")[2]
    assert f"- {drift['why']}" in said
    assert drift["why"] in result.output.partition("learner ")[0]  # as it came


def test_learning_more_says_which_drifts_it_noticed(drifting, tmp_path):
    lines = drifting.read_text().splitlines()
    parts = [tmp_path / "first.csv", tmp_path / "second.csv"]
    parts[0].write_text("\n".join(lines[:20_001]))
    parts[1].write_text("\n".join([lines[0], *lines[20_001:]]))
    assert run("run", parts[0], "--out", tmp_path / "out").exit_code == 0
    result = run("learn", tmp_path / "out/model.dmt", parts[1])
    assert re.search("drift since about row 2[345],000", result.output)


def test_callbacks_hear_changes_and_drifts(drifting):
    changes, drifts = [], []
    model = DynamicModelTreeClassifier()
    for _ in prequential(model, drifting, on_change=changes.append, on_drift=drifts.append):
        pass
    assert changes == list(model.events_)
    assert [drift.n_rows for drift in drifts] == [drift.n_rows for drift in model.drifts()]
    assert drifts


def test_every_kind_of_model_says_what_would_change_its_prediction(folder, tmp_path):
    row = ["age=40", "income=20,000", "owner=yes"]
    assert (
        run(
            "run", folder / "loans.csv", "--model", "forest", "--out", tmp_path / "forest"
        ).exit_code
        == 0
    )
    result = run("explain", tmp_path / "forest/model.dmt", *row, "--counterfactual")
    assert (result.exit_code, "It would be " in result.output) == (0, True), result.output
    rents = [folder / "rents/model.dmt", "area=50", "floor=2", "town=Jena"]
    said = float(re.search(r"Prediction: ([\d.]+)", run("explain", *rents).output)[1])
    result = run("explain", *rents, "--above", said + 50)
    [number] = re.findall(r"It would be ([\d,.]+) if area were", result.output)[:1]
    assert float(number.replace(",", "")) > said + 50
    result = run("explain", *rents, "--counterfactual")
    assert (result.exit_code, "--below 200, or --above 100" in result.output) == (2, True)
    result = run("explain", folder / "loans/model.dmt", *row, "--below", "3")
    assert (result.exit_code, "below is for regressors" in result.output) == (2, True)


@pytest.mark.parametrize("words", [["predict", "rows"], ["learn", "rows"], ["explain", "age=40"]])
def test_a_file_that_is_no_model_is_called_so(words, folder):
    command, rest = words
    other = folder / "loans.csv" if rest == "rows" else rest
    result = run(command, folder / "loans.csv", other)
    assert result.exit_code == 2
    assert "loans.csv is not a model file: give the model.dmt" in " ".join(result.output.split())
