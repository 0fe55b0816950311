"""Text: `driftree run --text` learns words."""

import copy
import csv
import json

import numpy as np
import pytest
from river.compose import Pipeline
from river.feature_extraction import BagOfWords
from sklearn.linear_model import SGDClassifier
from typer.testing import CliRunner

import driftree
from driftree import Checkpointer, DynamicModelTreeClassifier, cli
from driftree.evaluate import prequential, read_records
from driftree.evaluate.runs import RunSettings, open_source
from driftree.streams import open_stream
from driftree.streams.rows import Rows
from repeatable import figures

SPAM, HAM = ["prize", "winner", "claim", "urgent"], ["lunch", "home", "meeting", "thanks"]


def made_up(n_rows=600):
    """Return messages of which one word in five tells, some of them missing, and their labels."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(n_rows):
        label = rng.choice(["spam", "ham"])
        telling = rng.choice(SPAM if label == "spam" else HAM)
        others = [f"word{j}" for j in rng.integers(0, 300, 4)]
        message = "" if i % 50 == 49 else " ".join([*others, telling]).title()
        rows.append((message, rng.choice(["phone", "web"]), len(message), label))
    return rows


@pytest.fixture(scope="module")
def mail(tmp_path_factory):
    path = tmp_path_factory.mktemp("mail") / "mail.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message", "sender", "length", "spam"])
        writer.writerows(made_up())
    return path


def run(*arguments, **options):
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli.app, [str(a) for a in arguments], **options)


def f1(folder, learner="dmt"):
    records = read_records(folder / "records.csv")
    return np.mean([record.f1 for record in records if record.learner == learner])


# ---------------------------------------------------------------------- the command
@pytest.mark.parametrize("more", [[], ["--row-by-row"], ["--delay", "30"]])
def test_run_learns_words(mail, tmp_path, more):
    result = run("run", mail, "--text", "message", "--out", tmp_path, *more)
    assert result.exit_code == 0, result.output
    assert f1(tmp_path) > 0.85
    assert json.loads((tmp_path / "summary.json").read_text())["settings"]["text"] == ["message"]
    assert "text, as words" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_standard_input_has_text_as_well(mail, tmp_path):
    arguments = ["run", "-", "--text", "message", "--batch", "100", "--out", tmp_path]
    result = run(*arguments, input=mail.read_bytes())
    assert result.exit_code == 0, result.output
    assert f1(tmp_path) > 0.85


def test_compare_leaves_out_who_takes_no_text_unless_named(mail, tmp_path):
    few = ["--rows", "300", "--text", "message"]
    result = run("compare", mail, *few, "--out", tmp_path / "all")
    assert result.exit_code == 0, result.output
    learners = json.loads((tmp_path / "all" / "summary.json").read_text())["learners"]
    assert list(learners) == ["dmt", "vfdt-mc", "vfdt-nba", "ht-ada", "efdt", "majority"]
    result = run("compare", mail, *few, "--models", "dmt,fimtdd", "--out", tmp_path / "two")
    assert result.exit_code == 2
    assert "fimtdd does not support text" in result.output


def test_the_saved_model_goes_on_with_words(mail, tmp_path):
    arguments = ["run", mail, "--text", "message", "--checkpoint-every", "200", "--out", tmp_path]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    model = driftree.load(tmp_path / "model.dmt")
    pipeline = Pipeline(BagOfWords(on="message", lowercase=True), model)
    assert pipeline.predict_one({"message": "Urgent! Claim your prize"}) == "spam"
    assert pipeline.predict_one({"message": "Thanks, lunch at home?"}) == "ham"


@pytest.mark.parametrize("delay", [0, 130])
def test_resumed_text_gives_the_same(mail, tmp_path, delay):
    def records(folder, n_batches):
        model = DynamicModelTreeClassifier(absent="zero")
        stream = open_stream(mail, batch=100, n_rows=100 * n_batches, text=["message"])
        with Checkpointer(tmp_path / folder, every=100) as checkpointer:
            told = prequential(
                model, stream, text=["message"], delay=delay, checkpointer=checkpointer
            )
            return figures(list(told)), model

    whole, model = records("whole", 6)
    records("parts", 3)
    again, resumed = records("parts", 6)
    assert again == whole
    row = {"prize": 1, "word7": 2}
    assert resumed.predict_proba_one(row) == model.predict_proba_one(row)


def test_other_text_is_not_resumed(mail, tmp_path):
    arguments = ["run", mail, "--resume", "--rows", "300", "--out", tmp_path]
    assert run(*arguments, "--text", "message").exit_code == 0
    result = run(*arguments, "--text", "message,sender")
    assert result.exit_code == 2
    assert "text was" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "body"], "text names 'body', but the columns of"),
        (["--text", "spam"], "text names 'spam', which is the target"),
        (["--text", "length"], "is named in text, but holds numbers"),
        (["--text", "message", "--categorical", "message"], "in categorical and in text"),
        (["--text", "message", "--model", "dmt-paper"], "dmt-paper does not support text"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_results(mail, tmp_path, arguments, words):
    out = tmp_path / "out"
    result = run("run", mail, *arguments, "--out", out)
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith("driftree:")]
    assert words in line
    assert not out.exists()


def test_categories_beside_text_are_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {"message": ["ok lar", None], "zip": [1, 2], "y": ["a", "b"]}
    parquet.write_table(pyarrow.table(table), tmp_path / "mail.parquet")
    settings = {"source": str(tmp_path / "mail.parquet"), "learners": ("dmt",)}
    open_source(RunSettings(**settings, text=("message",)))
    with pytest.raises(ValueError, match="'zip' is categorical, but not stored as text"):
        open_source(RunSettings(**settings, text=("message",), categorical=("zip",)))


# ---------------------------------------------------------------------- rows and learners
def test_words_of_several_texts_stay_apart():
    X = {"subject": ["Prize", None], "body": ["a prize", "no"], "age": [3.0, np.nan]}
    rows = Rows({name: np.array(cells) for name, cells in X.items()}, [1, 0], ["subject", "body"])
    assert rows.dicts == [{"age": 3.0, "subject: prize": 1, "body: prize": 1}, {"body: no": 1}]
    assert rows[1:].dicts == rows.dicts[1:]
    assert Rows({"body": np.array(["no"])}, [1], ["body"])[:1].dicts == [{"no": 1}]


def test_in_batches_the_pipeline_learns_the_same(mail):
    tree = DynamicModelTreeClassifier(absent="zero")
    pipeline = Pipeline(BagOfWords(on="message", lowercase=True), copy.copy(tree))
    batches = [
        ({"message": np.array([text or "" for text in X["message"]], dtype=object)}, y)
        for X, y in open_stream(mail, batch=100, text=["message"])
    ]
    ours = [record.f1 for record in prequential(tree, batches, text=["message"])]
    assert [record.f1 for record in prequential(pipeline, batches)] == ours


def test_numbers_and_categories_stay_beside_words(mail):
    X, y = next(iter(open_stream(mail, text=["message"])))
    row = Rows(X, y, ["message"]).dicts[0]
    assert {"sender", "length"} < row.keys()
    assert "message" not in row
    model = DynamicModelTreeClassifier(absent="zero")
    list(prequential(model, [(X, y)], text=["message"], pretrain=False))
    as_word = {"sender == web" if name == "sender" else name: row[name] for name in row}
    as_word["sender == web"] = 1
    row["sender"] = "web"
    assert model.predict_proba_one(row) == model.predict_proba_one(as_word)


def test_who_cannot_learn_from_dicts_is_refused(mail):
    with pytest.raises(TypeError, match="needs learn_one"):
        list(prequential(SGDClassifier(), open_stream(mail), text=["message"]))
    with pytest.raises(TypeError, match=r"write \['message'\]"):
        list(prequential("dmt", open_stream(mail), text="message"))
