"""The command line: what it prints, and how it ends."""

import numpy as np
import pytest
from sklearn.metrics import precision_score, recall_score
from typer.testing import CliRunner

from driftree import __version__, cli

FEW_ROWS = "4000"


def run(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli.app, list(arguments))


@pytest.fixture(scope="module")
def demo():
    return run("demo", "--rows", FEW_ROWS)


def test_demo_shows_progress_a_table_the_tree_and_its_changes(demo):
    assert demo.exit_code == 0
    out = demo.output
    assert f"{int(FEW_ROWS):,} rows: driftree F1 0." in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("River")] == [
        ["River", "VFDT-NBA"]
    ]
    assert "|--- age <= " in out
    assert "log-odds of " in out
    assert "split all rows on age <= " in out


def test_demo_is_plain_text_when_nobody_watches(demo):
    assert "\x1b" not in demo.output
    assert "\r" not in demo.output


def test_seed_chooses_the_stream(demo):
    def tree_of(text):
        return text[text.index("The tree that") : text.index("Its last changes")]

    again, other = (run("demo", "--rows", FEW_ROWS, "--seed", seed) for seed in ("1", "2"))
    assert tree_of(again.output) == tree_of(demo.output)
    assert tree_of(other.output) != tree_of(demo.output)


def test_live_display(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("demo", "--rows", "1000")
    assert result.exit_code == 0
    assert "of 1,000 rows" in result.output


def test_help_names_the_commands():
    result = run("--help")
    assert result.exit_code == 0
    assert "demo" in result.output


def test_version():
    assert run("--version").output.strip() == f"driftree {__version__}"


@pytest.mark.parametrize("arguments", [["demo", "--rows", "0"], ["demo", "--nope"], ["nope"]])
def test_bad_arguments_end_with_2(arguments):
    assert run(*arguments).exit_code == 2


def test_interrupt_ends_quietly_with_130(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(cli, "_learn_demo", interrupt)
    result = run("demo")
    assert result.exit_code == 130
    assert "Abort" not in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("seed", range(20))
def test_batch_f1_is_made_of_scikit_learns_weighted_scores(seed):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.choice(["a", "b", "c"], size=(2, 1 + seed)).tolist()
    score = {"average": "weighted", "zero_division": 0.0}
    precision = precision_score(labels, predicted, **score)
    recall = recall_score(labels, predicted, **score)
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert cli.batch_f1(labels, predicted) == pytest.approx(expected)
