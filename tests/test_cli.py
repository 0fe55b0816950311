"""The command line: what it prints, and how it ends."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
from typer.testing import CliRunner

from driftree import __version__, cli
from driftree.evaluate import LEARNERS, learners_for, read_records, title_of
from driftree.learn._kernels import instruction_set
from driftree.streams import DATA_SETS, agrawal
from repeatable import figures

FEW_ROWS = "4000"


def run(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli.app, list(arguments))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "page.html"


@pytest.fixture(scope="module")
def demo(page):
    return run("demo", "--rows", FEW_ROWS, "--out", str(page))


def test_demo_shows_progress_a_table_the_tree_and_its_changes(demo):
    assert demo.exit_code == 0
    out = demo.output
    assert f"{int(FEW_ROWS):,} rows: DMT (driftree) F1 0." in out
    assert sum(line.startswith("VFDT (NBA)") for line in out.splitlines()) == 1
    assert "|--- age <= " in out
    assert "log-odds of " in out
    assert "all rows are split by age <= " in out


def test_demo_ends_with_the_report(demo, page):
    assert demo.output.rstrip().endswith(f"open {page.as_uri()}")
    text = page.read_text(encoding="utf-8")
    assert "<h1>4,000 loan applications, and a rule that changes</h1>" in text
    assert "all rows are split by age" in text
    assert "VFDT (NBA)" in text


def test_demo_is_plain_text_when_nobody_watches(demo):
    assert "\x1b" not in demo.output
    assert "\r" not in demo.output


def test_seed_chooses_the_stream(demo, tmp_path):
    def tree_of(text):
        return text[text.index("The tree that") : text.index("Its last changes")]

    out = ["--out", str(tmp_path / "page.html")]
    again, other = (run("demo", "--rows", FEW_ROWS, "--seed", seed, *out) for seed in ("1", "2"))
    assert tree_of(again.output) == tree_of(demo.output)
    assert tree_of(other.output) != tree_of(demo.output)


def test_live_display(monkeypatch, tmp_path):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("demo", "--rows", "1000", "--out", str(tmp_path / "page.html"))
    assert result.exit_code == 0
    assert "of 1,000 rows" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["demo", "run", "compare", "report", "paper", "data"]),
        (["report"], ["--models", "--title", "--out", "--overwrite"]),
        (["run"], ["--target", "--batch", "--resume", "--on-bad-row", "--delay"]),
        (["compare"], ["--jobs", "--task", *LEARNERS, *learners_for("regression")]),
        (["paper"], ["--data", "--models", "--jobs"]),
        (["data"], ["list", "get"]),
    ],
)
def test_help_names_commands_and_options(arguments, words):
    result = run(*arguments, "--help")
    assert result.exit_code == 0
    for word in words:
        assert word in result.output


def test_the_package_can_be_run():
    command = [sys.executable, "-m", "driftree", "--version"]
    assert subprocess.check_output(command, text=True).strip() == f"driftree {__version__}"


def test_version():
    assert run("--version").output.strip() == f"driftree {__version__}"


def test_versions_tells_all_that_a_report_of_a_mistake_needs():
    told = dict(line.split(None, 1) for line in run("versions").output.splitlines())
    assert told["driftree"] == __version__
    assert told["kernels"].split()[0] == instruction_set()
    assert {"numpy", "scikit-learn", "river", "pandas", "system", "cores", "threads"} <= told.keys()


@pytest.mark.parametrize("arguments", [["demo", "--rows", "0"], ["demo", "--nope"], ["nope"]])
def test_bad_arguments_end_with_2(arguments):
    assert run(*arguments).exit_code == 2


def test_interrupt_ends_quietly_with_130(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(cli.demo.Race, "run", interrupt)
    result = run("demo")
    assert result.exit_code == 130
    assert "Abort" not in result.output
    assert "Traceback" not in result.output


# ---------------------------------------------------------------------- run and compare
@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """A CSV file of 2,000 loan applications."""
    X, y = next(agrawal(2000, batch_rows=2000, function=2))
    path = tmp_path_factory.mktemp("data") / "loans.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["salary", *(f"feature {j}" for j in range(1, 9)), "y"])
        for row, label in zip(X.tolist(), y.tolist(), strict=True):
            writer.writerow([*row, "yes" if label else "no"])
    return path


def test_run_prints_a_table_and_the_tree_and_leaves_files(loans, tmp_path):
    out = tmp_path / "out"
    result = run("run", str(loans), "--target", "y", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "dmt" in result.output
    assert "The tree at the end" in result.output
    assert "log-odds of yes" in result.output
    records = read_records(out / "records.csv")
    assert [record.n_rows for record in records] == list(range(200, 2001, 100))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["settings"]["target"] == "y"
    mean = sum(record.f1 for record in records) / len(records)
    assert summary["learners"]["dmt"]["f1"]["mean"] == pytest.approx(mean)
    assert f"{mean:.3f}" in result.output
    assert (out / "plot.png").exists() == (find_spec("matplotlib") is not None)
    assert "<h1>loans</h1>" in (out / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rents(tmp_path_factory):
    """A CSV file of 1,500 rents, all whole numbers but the last one."""
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("numbers") / "rents.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["area", "town", "rent"])
        for area in rng.uniform(20, 120, 1499):
            town = rng.choice(["Ulm", "Bonn"])
            writer.writerow([area, town, round(300 + 8 * area + 100 * (town == "Ulm"))])
        writer.writerow([50, "Ulm", 812.5])
    return path


@pytest.mark.parametrize("models", ["dmt", "fimtdd", "dmt,htr,mean,no-change"])
def test_numbers_are_run_and_compared(rents, tmp_path, models):
    names = models.split(",")
    command = ["compare", "--models"] if len(names) > 1 else ["run", "--model"]
    options = ["--task", "regression", "--out", str(tmp_path)]
    result = run(command[0], str(rents), command[1], models, *options)
    assert result.exit_code == 0, result.output
    assert "MAE" in result.output
    assert "F1" not in result.output
    records = read_records(tmp_path / "records.csv")
    assert {record.learner for record in records} == set(names)
    assert {record.task for record in records} == {"regression"}
    last = {record.learner: record for record in records}
    assert last[names[0]].mae < 60
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["settings"]["task"] == "regression"
    assert summary["learners"][names[0]]["mae"]["mean"] > 0
    assert (tmp_path / "report.html").exists() == ("dmt" in names)
    assert ("The tree at the end" in result.output) == (names == ["dmt"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "vfdt-mc"], "there is no learner 'vfdt-mc'"),
        (["--model", "linear", "--resume"], "linear cannot have checkpoints"),
        (["--target", "town"], "column 'town': expected a number"),
    ],
)
def test_mistakes_about_numbers_are_named(rents, tmp_path, options, words):
    result = run("run", str(rents), "--task", "regression", "--out", str(tmp_path), *options)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_a_data_set_has_labels(tmp_path):
    result = run("run", "electricity", "--task", "regression", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "omit --task regression" in " ".join(result.output.split())


def test_the_report_is_about_the_tree_also_where_others_come_first(loans, tmp_path):
    arguments = ["--models", "majority,dmt", "--out", str(tmp_path)]
    assert run("compare", str(loans), *arguments).exit_code == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    ours, other = (f'"title":"{LEARNERS[name].title}"' for name in ("dmt", "majority"))
    assert text.index(ours) < text.index(other)
    alone = tmp_path / "alone"
    assert run("run", str(loans), "--model", "majority", "--out", str(alone)).exit_code == 0
    assert not (alone / "report.html").exists()


def test_report_is_also_of_a_forest(loans, tmp_path):
    out = tmp_path / "page.html"
    result = run("report", str(loans), "--models", "forest,majority", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "One tree at a time" in out.read_text(encoding="utf-8")


def test_report_writes_a_page_once(loans, tmp_path):
    out = tmp_path / "new" / "page.html"
    arguments = ["report", str(loans), "--models", "dmt,majority", "--out", str(out)]
    result = run(*arguments, "--title", "Loans & more")
    assert result.exit_code == 0, result.output
    assert f"{out}: 2,000 rows" in result.output
    assert "<h1>Loans &amp; more</h1>" in out.read_text(encoding="utf-8")
    again = run(*arguments)
    assert again.exit_code == 2
    assert "--overwrite" in again.output
    assert "Loans &amp; more" in out.read_text(encoding="utf-8")
    assert run(*arguments, "--overwrite").exit_code == 0
    assert "<h1>loans</h1>" in out.read_text(encoding="utf-8")


def test_a_page_that_is_a_folder_is_told_before_learning(loans, tmp_path, monkeypatch):
    monkeypatch.setattr("driftree.cli.report._write", lambda *_: pytest.fail("it learns"))
    result = run("report", str(loans), "--overwrite", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path} is a folder" in " ".join(result.output.split())


def test_results_are_not_written_over_unless_asked(loans, tmp_path):
    arguments = ["run", str(loans), "--model", "majority", "--out", str(tmp_path)]
    assert run(*arguments).exit_code == 0
    before = (tmp_path / "records.csv").read_text()
    again = run(*arguments)
    assert again.exit_code == 2
    assert "--overwrite to replace it" in again.output
    assert (tmp_path / "records.csv").read_text() == before
    resumed = run(*arguments, "--resume")
    assert resumed.exit_code == 2
    assert "majority cannot have checkpoints, which hold no code" in resumed.output
    assert run(*arguments, "--overwrite").exit_code == 0


def test_no_earlier_result_is_left_among_the_new_ones(loans, rents, tmp_path):
    out = ["--out", str(tmp_path / "out"), "--overwrite"]
    assert run("run", str(loans), "--model", "majority", *out).exit_code == 0
    assert (tmp_path / "out/labels.csv").exists()
    assert run("run", str(rents), "--model", "mean", *out).exit_code == 0
    assert not (tmp_path / "out/labels.csv").exists()


def test_a_file_is_no_folder_for_results(loans, tmp_path):
    (tmp_path / "out").write_text("mine")
    result = run("run", str(loans), "--out", str(tmp_path / "out"), "--overwrite")
    assert result.exit_code == 2
    assert "out is a file: name a folder for the results" in " ".join(result.stderr.split())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
@pytest.mark.parametrize("arguments", [["versions"], ["data", "list"]])
def test_a_full_device_is_told_in_one_line(arguments):
    command = [sys.executable, "-m", "driftree", *arguments]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode != 0
    assert "driftree: [Errno 28] No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_the_users_own_files_are_safe(loans, tmp_path, option):
    for name in ("records.csv", "records_2024.csv", "records-dmt.csv"):
        mine = tmp_path / name
        mine.write_bytes(loans.read_bytes())
        run("run", str(mine), "--model", "fimtdd", "--out", str(tmp_path), option)
        assert mine.read_bytes() == loans.read_bytes()


def test_a_mistake_loses_no_earlier_results(loans, tmp_path):
    out = ["--out", str(tmp_path)]
    arguments = ["--model", "majority", *out]
    assert run("run", str(loans), *arguments).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other_ways = [
        ["run", "laons.csv", *arguments, "--overwrite"],
        ["run", str(loans), *arguments, "--resume"],
        ["run", str(loans), *out, "--resume", "--overwrite"],
        ["run", str(loans), *out, "--resume"],
        ["run", str(loans), *out, "--checkpoint-every", "500"],
        ["compare", str(loans), "--models", "dmt,majority", "--jobs", "2", *out],
    ]
    for way in other_ways:
        result = run(*way)
        assert result.exit_code == 2, result.output
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_too_few_rows_leave_nothing_that_would_be_in_the_way(loans, tmp_path):
    arguments = ["run", str(loans), "--model", "majority", "--out", str(tmp_path)]
    assert run(*arguments, "--batch", "5000").exit_code == 2
    assert list(tmp_path.iterdir()) == []
    assert run(*arguments, "--batch", "500").exit_code == 0


def test_names_are_printed_as_they_are(loans, tmp_path):
    strange = tmp_path / "strange.csv"
    text = loans.read_text().replace("salary", "[red]user:id:[/x]", 1)
    strange.write_text(text)
    out = tmp_path / "out[/x]"
    result = run("run", str(strange), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert f"{out}: records.csv" in result.output.replace("\n", "")
    assert "[red]user:id:[/x]" in result.output


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_figures_are_whole_on_any_screen(loans, tmp_path, columns):
    result = CliRunner(env={"COLUMNS": columns}).invoke(
        cli.app, ["compare", str(loans), "--models", "dmt-paper,no-change", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0
    assert "…" not in result.output
    (heads,) = [line.split() for line in result.output.splitlines() if line.startswith("learner")]
    assert heads[:4] == ["learner", "F1", "splits", "rows/s"]
    assert ("MB" in heads) == (columns == "140")


def test_labels_that_are_no_classes_are_refused_for_every_learner(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("a,price\n" + "".join(f"{i},{i / 7}\n" for i in range(500)))
    options = ["--task", "classification"]
    for model in ("dmt", "vfdt-nba"):
        result = run("run", str(path), "--model", model, "--out", str(tmp_path / model), *options)
        assert result.exit_code == 2, result.output
        assert "continuous" in result.output
        assert "name the target in --categorical if each value is a label" in result.output


def test_compare_tells_who_did_how_well_with_any_number_of_jobs(loans, tmp_path):
    models = ["dmt", "vfdt-nba", "majority"]
    found = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        arguments = ["--models", ",".join(models), "--jobs", jobs, "--out", str(out)]
        result = run("compare", str(loans), *arguments)
        assert result.exit_code == 0, result.output
        starts = [line.split("  ")[0] for line in result.output.splitlines()]
        titles = [title_of(name) for name in models]
        assert [start for start in starts if start in titles] == titles
        found.append(read_records(out / "records.csv"))
    records, in_processes = found
    assert [record.learner for record in records[:3]] == models
    assert len(records) == 3 * 19
    f1 = {name: sum(r.f1 for r in records if r.learner == name) for name in models}
    assert f1["dmt"] > f1["majority"]
    assert figures(in_processes) == figures(records)


def test_standard_input(loans, tmp_path):
    result = CliRunner().invoke(
        cli.app,
        ["run", "-", "--batch", "500", "--model", "logistic", "--out", str(tmp_path)],
        input=loans.read_bytes(),
    )
    assert result.exit_code == 0, result.output
    assert [r.n_rows for r in read_records(tmp_path / "records.csv")] == [1000, 1500, 2000]


def test_malformed_rows_are_reported_at_the_end(loans, tmp_path):
    wrong = tmp_path / "wrong.csv"
    lines = loans.read_text().splitlines()
    wrong.write_text("\n".join([*lines[:1500], "a lot" + lines[1500][5:], *lines[1501:]]))
    arguments = ["run", str(wrong), "--model", "majority", "--out", str(tmp_path / "out")]
    stopped = run(*arguments)
    assert stopped.exit_code == 2
    (line,) = [line for line in stopped.output.splitlines() if line.startswith("driftree:")]
    assert "line 1501" in line
    assert "'salary'" in line
    assert "--on-bad-row skip" in line
    skipped = run(*arguments, "--on-bad-row", "skip", "--overwrite")
    assert skipped.exit_code == 0
    assert "1 malformed rows were skipped" in skipped.output
    assert "line 1501, column 'salary'" in skipped.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.csv"], "no file 'nowhere.csv'"),
        (["run", "{loans}", "--target", "z"], "no column 'z'"),
        (["run", "{loans}", "--model", "dmtt"], "did you mean dmt?"),
        (["run", "{loans}", "--batch", "5000"], "2,000 rows, no more than one batch"),
        (["run", "{loans}", "--batch", "inf"], "--batch must be"),
        (["run", "{loans}", "--categorical", "salry"], "salry"),
        (["run", "sea", "--target", "y"], "omit the target"),
        (["run", "sea", "--categorical", "x9"], "no feature 'x9'"),
        (["compare", "{loans}", "--models", ","], "at least one learner"),
        (["compare", "-", "--models", "dmt,majority", "--jobs", "2"], "only one process"),
        (["report", "{loans}", "--models", "majority"], "name dmt, forest or dmt-paper first"),
        (["report", "nowhere.csv"], "no file 'nowhere.csv'"),
        (["paper", "--data", "electricty"], "did you mean electricity?"),
        (["data", "get", "poke"], "did you mean poker?"),
    ],
)
def test_a_mistake_is_one_line_and_ends_with_2(loans, tmp_path, arguments, words):
    filled = [argument.format(loans=loans) for argument in arguments]
    out = ["--out", str(tmp_path / "out")] if arguments[0] != "data" else []
    result = run(*filled, *out)
    assert result.exit_code == 2
    lines = [line for line in result.output.splitlines() if line.startswith("driftree:")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in result.output


INTERRUPT_AN_IMPORT = """
import os, signal, sys
from driftree.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
module = sys.argv.pop(1)
class Interrupting:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("module", ["typer", "driftree.streams", "driftree.learn._kernels"])
def test_ctrl_c_while_a_command_starts_ends_quietly_with_130(module):
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AN_IMPORT, module, "versions"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 130
    assert process.stdout == process.stderr == ""


def test_ctrl_c_leaves_complete_files(loans, tmp_path):
    code = "import sys; from driftree.cli import app; app(sys.argv[1:])"
    out = tmp_path / "out"
    arguments = ["compare", str(loans), "--models", "levbag3,arf3", "--batch", "20"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--jobs", "2", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    files = [out / "records-levbag3.csv", out / "records-arf3.csv"]
    while not all(file.exists() and len(read_records(file)) > 2 for file in files):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert f"Stopped. Results so far are in {out}" in errors
    assert "Traceback" not in errors
    merged = read_records(out / "records.csv")
    assert len(merged) == sum(len(read_records(file)) for file in files)
    for file in files:
        assert file.read_text().endswith("\n")


# ---------------------------------------------------------------------- data and paper
def test_data_list_names_all_data_sets(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTREE_CACHE", str(tmp_path))
    monkeypatch.delenv("DRIFTREE_DATA", raising=False)
    result = run("data", "list")
    assert result.exit_code == 0
    for name in DATA_SETS:
        assert name in result.output
    monkeypatch.setenv("DRIFTREE_DATA", str(tmp_path / "nowhere"))
    wrong = run("data", "list")
    assert wrong.exit_code == 2
    assert "nowhere" in wrong.output


def test_paper_prints_and_writes_tables_and_figures(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DRIFTREE_DATA", raising=False)
    arguments = ["paper", "--data", "sea,tueyeq", "--models", "dmt,majority", "--rows", "5000"]
    out = tmp_path / "out"
    result = run(*arguments, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "0.88 ± 0.02" in result.output  # what the paper has for SEA
    assert "Only the first 5,000 rows" in result.output
    assert "tueyeq" in result.output
    names = {path.name for path in out.iterdir()}
    for number, name in zip(
        ("I", "II", "III", "IV", "V", "VI"),
        ("data_sets", "f1", "n_paper_splits", "n_parameters", "seconds", "summary"),
        strict=True,
    ):
        assert {f"table{number}_{name}.{suffix}" for suffix in ("md", "tex", "csv")} <= names
    if find_spec("matplotlib"):
        assert {"figure3.png", "figure4.pdf"} <= names
    results = json.loads((out / "results.json").read_text())
    assert results["missing"] == {"tueyeq": "to be fetched by hand"}
    assert [(r["data_set"], r["learner"], r["rows"]) for r in results["results"]] == [
        ("sea", "dmt", 5000),
        ("sea", "majority", 5000),
    ]

    def forget(*_, **__):
        raise AssertionError("it is to be remembered, not run again")

    monkeypatch.setattr("driftree.paper.experiments.run_protocol", forget)
    again = run(*arguments, "--out", str(out))
    assert again.exit_code == 0, again.output


def test_paper_without_trees_has_tables_but_no_figures(monkeypatch, tmp_path):
    monkeypatch.delenv("DRIFTREE_DATA", raising=False)
    arguments = ["paper", "--data", "sea", "--models", "majority", "--rows", "3000"]
    result = run(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    names = {path.name for path in tmp_path.iterdir()}
    assert "tableII_f1.md" in names
    assert not any(name.startswith("figure") for name in names)
