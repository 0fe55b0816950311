"""The report from the command line: what it was made with, and what was left out."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from driftree import DynamicModelForestClassifier
from driftree.cli import app


@pytest.fixture
def loans(tmp_path):
    """A file of which two rows are malformed."""
    lines = [f"{age},{age % 7},{'yes' if age % 2 else 'no'}" for age in range(600)]
    lines[100:100] = ["1,2", "1,2,yes,4"]
    path = tmp_path / "loans.csv"
    path.write_text("\n".join(["age,size,target", *lines]) + "\n", encoding="utf-8")
    return path


def test_report_says_how_it_was_made_and_what_was_skipped(loans, tmp_path):
    out = tmp_path / "page.html"
    arguments = ["report", str(loans), "--on-bad-row", "skip", "--batch", "50", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "2 malformed rows were skipped" in result.output
    [run] = re.findall(r'"run":(\[\[.*?\]\])', out.read_text(encoding="utf-8"))
    for words in (
        f"driftree report {loans} --batch 50.0 --on-bad-row skip --out {out}",
        "600 in batches of 50",
        '["malformed rows","2 skipped"]',
        '["learners","dmt"]',
        '["seed","1"]',
    ):
        assert words in run


def test_a_report_repeats_every_parameter(loans, tmp_path):
    out = tmp_path / "page.html"
    settings = ["--param", "epsilon=0.5", "--param", "max_depth=3"]
    arguments = ["report", str(loans), "--on-bad-row", "skip", *settings, "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert f"{' '.join(settings)} --out {out}" in out.read_text(encoding="utf-8")


def test_demo_makes_the_folder_that_it_writes_to(tmp_path):
    out = tmp_path / "missing" / "folder" / "demo.html"
    result = CliRunner().invoke(app, ["demo", "--rows", "1000", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "driftree demo --rows 1000" in out.read_text(encoding="utf-8")


def test_a_forest_that_is_there_has_a_page(tmp_path):
    model = DynamicModelForestClassifier(n_trees=2)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    model.partial_fit(X, X[:, 0] > 0)
    model.save(tmp_path / "forest.dmt")
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "forest.dmt"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "Dynamic Model Forest" in out.read_text(encoding="utf-8")
