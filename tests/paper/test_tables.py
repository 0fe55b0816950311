"""The paper's tables: its own figures, what was found beside them, and what is missing."""

import csv
import io
import os
import re
from pathlib import Path
from statistics import fmean

import pytest

from driftree.evaluate.records import Figure, Record
from driftree.paper import published
from driftree.paper.experiments import PaperResults
from driftree.paper.published import KNOWN_DRIFT, MEAN, TITLES
from driftree.paper.six_tables import (
    CATEGORIES,
    TREES,
    make_tables,
    rank,
    table_f1,
    table_seconds,
    table_splits,
    table_summary,
)
from driftree.paper.table_formats import WRITERS, escape_latex, to_csv, to_latex, to_markdown

PAPER = Path(
    os.environ.get(
        "DRIFTREE_PAPER",
        Path(__file__).parents[3] / "shared" / "paper" / "dynamic-model-tree.tex",
    )
)
PUBLISHED = {
    "f1": published.F1,
    "n_paper_splits": published.SPLITS,
    "n_parameters": published.PARAMETERS,
    "seconds": published.SECONDS,
}


def make_records(learner, f1=(0.5, 0.7), n_splits=(10, 30), seconds=0.001):
    return [
        Record(
            learner=learner,
            step=step,
            n_rows=100 * (step + 1),
            f1=score,
            accuracy=score,
            kappa=0.0,
            log_loss=1.0,
            n_splits=None,
            n_paper_splits=splits,
            n_parameters=None if splits is None else 100 * splits,
            n_nodes=splits,
            depth=1,
            predict_seconds=seconds / 2,
            learn_seconds=seconds / 2,
            memory=None,
        )
        for step, (score, splits) in enumerate(zip(f1, n_splits, strict=True), 1)
    ]


@pytest.fixture
def findings():
    """Two trees and an ensemble on a few data sets, one of them only in part."""
    results = {
        ("electricity", "dmt"): make_records("dmt", f1=(0.8, 0.8)),
        ("electricity", "vfdt-mc"): make_records("vfdt-mc", n_splits=(1000, 3000)),
        ("airlines_5of7_features", "dmt"): make_records("dmt"),
        ("airlines_5of7_features", "vfdt-mc"): make_records("vfdt-mc"),
        ("sea", "dmt"): make_records("dmt", n_splits=(2, 2)),
        ("sea", "arf3"): make_records("arf3", n_splits=(None, None)),
    }
    return PaperResults.from_records(
        results,
        counts={
            "electricity": (45312, 8, 2, 26075),
            "airlines_5of7_features": (539383, 5, 2, 299119),
        },
        missing={
            "tueyeq": "made by hand",
            "gas": "100 % of gas_data & more",
            "airlines": "no network",
        },
    )


def paper_as_findings():
    """The paper's own figures, as if they had been found here; seconds are known as means only."""
    learners = {learner for _, learner in published.F1}
    return PaperResults(
        summaries={
            (data_set, learner): {
                name: table.get((data_set, learner)) or table.get((MEAN, learner))
                for name, table in PUBLISHED.items()
            }
            for data_set in TITLES
            for learner in learners
        }
    )


# ---------------------------------------------------------------------- published figures
@pytest.mark.slow
@pytest.mark.skipif(not PAPER.exists(), reason="needs the paper's source, see DRIFTREE_PAPER")
def test_published_figures_are_those_of_the_papers_source():
    learners = ["dmt-paper", "fimtdd", "vfdt-mc", "vfdt-nba", "ht-ada", "efdt", "arf3", "levbag3"]

    def figure(cell):
        return Figure(*(float(part.replace(",", "")) for part in cell.split("±")))

    for label, table in [
        ("f1", published.F1),
        ("n_paper_splits", published.SPLITS),
        ("n_param", published.PARAMETERS),
    ]:
        rows = read_paper(label)[1:]
        expected = {
            (column, learner): figure(cell)
            for learner, row in zip(learners, rows, strict=False)
            for column, cell in zip((*TITLES, MEAN), row[1:], strict=True)
        }
        assert len(rows) == len(learners[: len(rows)])
        assert table == expected

    _, row = read_paper("time")
    assert list(published.SECONDS.values()) == [figure(cell) for cell in row]
    assert list(published.SECONDS) == [(MEAN, learner) for learner in learners[:6]]

    counts = [re.findall(r"[\d,]+", " ".join(row[1:])) for row in read_paper("datasets")[1:]]
    numbers = [[int(cell.replace(",", "")) for cell in row] for row in counts]
    found = list(published.COUNTS.values())
    assert [
        [count for count in found[i : i + 4] if count is not None] for i in range(0, len(found), 4)
    ] == numbers

    signs = {"++": "++", "+": "+", "--": "-", "-- --": "--"}
    assert {
        (category, learner): signs[cell]
        for learner, row in zip(learners, read_paper("summary")[2:], strict=False)
        for category, cell in zip(CATEGORIES, row[1:], strict=True)
    } == published.SUMMARY


def read_paper(label):
    """Return the cells of a table in the paper's source, without its markup."""
    text = PAPER.read_text(encoding="utf-8").partition(f"\\label{{tab:{label}}}")[2]
    body = text.partition("\\toprule")[2].partition("\\bottomrule")[0]
    body = re.sub(r"\\cite\{[^}]*\}|\\cmidrule\(lr\)\{[^}]*\}|\\midrule", "", body)
    body = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body)
    return [[cell.strip() for cell in row.split("&")] for row in body.split("\\\\") if row.strip()]


@pytest.mark.parametrize(
    ("table", "tolerance"),
    [(published.F1, 0.01), (published.SPLITS, 0.11), (published.PARAMETERS, 1.1)],
)
def test_published_means_are_those_of_the_published_cells(table, tolerance):
    for learner in {learner for _, learner in table}:
        for part in (0, 1):
            mean = fmean(table[data_set, learner][part] for data_set in TITLES)
            assert mean == pytest.approx(table[MEAN, learner][part], abs=tolerance)


# ---------------------------------------------------------------------- the rule of table VI
@pytest.mark.parametrize(
    ("values", "better", "expected"),
    [
        ([6, 5, 4, 3, 2, 1], "higher", "++ + + - - --"),
        ([6, 5, 4, 3, 2, 1], "lower", "-- - - + + ++"),
        ([3, 3, 2, 1], "higher", "++ ++ - --"),
        ([3, 2, 1], "higher", "++ + --"),
        ([1], "lower", "++"),
        ([], "lower", ""),
    ],
)
def test_rank_follows_the_papers_rule(values, better, expected):
    scores = rank({str(i): value for i, value in enumerate(values)}, better=better)
    assert " ".join(scores.values()) == expected


def test_rank_of_the_papers_own_means_is_the_papers_table_six():
    means = {
        "f1": published.F1,
        "n_paper_splits": published.SPLITS,
        "seconds": published.SECONDS,
    }
    values = {name: {tree: means[name][MEAN, tree].mean for tree in TREES} for name in means}
    values["f1_drift"] = {
        tree: fmean(published.F1[data_set, tree].mean for data_set in KNOWN_DRIFT) for tree in TREES
    }
    for category, (_, better) in CATEGORIES.items():
        scores = rank(values[category], better=better)
        assert scores == {tree: published.SUMMARY[category, tree] for tree in TREES}


def test_summary_of_the_papers_own_figures_is_the_papers():
    table = table_summary(paper_as_findings())
    for tree in TREES:
        for category in CATEGORIES:
            cell = table.cells[tree, category]
            assert cell.ours == cell.paper
    assert table.cells["dmt", "f1"].ours is None


def test_both_settings_are_ranked_among_the_papers_six():
    findings = paper_as_findings()
    bad = {name: Figure(0.1, 0.0) for name in PUBLISHED}
    mine = {(data_set, "dmt"): bad for data_set in TITLES}
    table = table_summary(PaperResults(summaries={**findings.summaries, **mine}))
    assert table.cells["dmt", "f1"].ours == "--"
    assert table.cells["dmt-paper", "f1"].ours == "++"
    assert table.cells["ht-ada", "f1"].ours == "--"


# ---------------------------------------------------------------------- cells
def test_cells_hold_what_was_found_beside_what_was_published(findings):
    table = table_f1(findings)
    assert table.cells["dmt", "electricity"].ours == pytest.approx(Figure(0.8, 0.0))
    assert table.cells["dmt", "electricity"].paper == Figure(0.76, 0.20)
    assert table.cells["vfdt-mc", "electricity"].ours == pytest.approx(Figure(0.6, 0.1))
    assert table.cells["dmt", "airlines"].ours == pytest.approx(Figure(0.6, 0.1))
    assert "5 of 7" in table.cells["dmt", "airlines"].note
    assert table.cells["vfdt-mc", "sea"].note == "not run"
    assert table.cells["dmt", "tueyeq"].note == "not available: made by hand"
    assert table_splits(findings).cells["arf3", "sea"].note == "not measured"
    assert table_seconds(findings).cells["dmt", "sea"].ours.mean == pytest.approx(0.001)


def test_means_are_over_the_same_data_sets_as_the_papers(findings):
    cells = table_f1(findings).cells
    assert cells["dmt", MEAN].ours == pytest.approx(Figure(fmean([0.8, 0.6, 0.6]), 0.2 / 3))
    assert cells["dmt", MEAN].paper == pytest.approx(
        Figure(fmean([0.76, 0.63, 0.88]), fmean([0.20, 0.05, 0.02]))
    )
    assert cells["dmt", MEAN].mark == ""
    assert cells["vfdt-mc", MEAN].paper == pytest.approx(Figure(0.70, 0.13))
    assert (cells["vfdt-mc", MEAN].mark, cells["vfdt-mc", MEAN].note) == ("‡", "without sea")
    assert cells["efdt", MEAN].ours is None
    assert table_seconds(findings).cells["dmt", MEAN].paper == Figure(0.53, 0.21)


def test_every_data_set_is_in_a_column_or_named_as_missing(findings):
    for table in make_tables(findings):
        notes = "\n".join(table.notes)
        for lost in ("tueyeq (made by hand)", "gas (100 % of gas_data & more)"):
            assert f"not available: {lost}" in notes
        assert "not run: bank_marketing, poker, kddcup99_10pct, covertype, insects_" in notes
        assert "† Airlines: 5 of 7 features" in notes
        assert "not available: airlines" not in notes


def test_data_sets_without_results_are_named_even_if_they_could_be_had():
    findings = PaperResults(counts={"gas": (13910, 128, 6, 3009)})
    assert any(note.startswith("not run:") and "gas" in note for note in findings.notes())


# ---------------------------------------------------------------------- formats
def test_markdown_puts_the_papers_line_below_ours(findings):
    lines = to_markdown(table_f1(findings)).splitlines()
    [head] = [line for line in lines if line.startswith("| Learner")]
    assert head == "| Learner | Electricity | Airlines † | SEA | Mean |"
    row = next(i for i, line in enumerate(lines) if line.startswith("| DMT (driftree)"))
    assert lines[row] == (
        "| DMT (driftree) | **0.800 ± 0.000** | **0.600 ± 0.100** | 0.600 ± 0.100 | 0.667 ± 0.067 |"
    )
    assert lines[row + 1].startswith("| *paper* | *0.76 ± 0.20* | *0.63 ± 0.05* | *0.88 ± 0.02* |")
    trailing = "| VFDT (MC) | 0.600 ± 0.100 | **0.600 ± 0.100** | not run | 0.600 ± 0.100 ‡ |"
    assert trailing in lines


def test_markdown_of_counts_and_scores_stands_side_by_side(findings):
    data_sets, *_, summary = map(to_markdown, make_tables(findings))
    assert "| Airlines † | 539,383 (539,383) | 5 (7) | 2 (2) | 299,119 (299,119) |" in data_sets
    assert "(15,762)" in data_sets
    assert "| EFDT | not run (-) | not run (+) | not run (+) | not run (--) |" in summary


def test_latex_has_all_columns_rules_and_no_bare_signs(findings):
    for table in make_tables(findings):
        text = to_latex(table)
        body = text.partition("\\toprule")[2].partition("\\bottomrule")[0]
        rows = [line for line in body.splitlines() if line.endswith("\\\\")]
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(table.columns) + 1}
        assert re.sub(r"\\[{}]", "", text).count("{") == re.sub(r"\\[{}]", "", text).count("}")
        assert text.isascii()
        assert not re.search(r"(?<!\\)[%#_]", text.partition("\n")[2])
    text = to_latex(table_f1(findings))
    assert r"100 \% of gas\_data \& more" in text
    assert text.count(r"\midrule") == 1
    assert r"\cmidrule(lr){1-1} \cmidrule(lr){2-14} \cmidrule(lr){15-15}" in text
    assert r"DMT (driftree) & \textbf{0.800 $\pm$ 0.000} & " in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 5 % of $x^2$ #1 {y} ~", None),
        ("--", "$--$"),
        ("best ++, worst --", "best ++, worst -{}-"),
        ("TüEyeQ † \\", r"T\"uEyeQ $^\dagger$ \textbackslash{}"),
    ],
)
def test_escape_latex(text, expected):
    escaped = escape_latex(text)
    if expected is None:
        assert not re.search(r"(?<!\\)[_&%$#~]", escaped)
    else:
        assert escaped == expected


def test_csv_has_every_cell_unrounded(findings):
    table = table_splits(findings)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == len(table.cells) == len(table.rows) * 14
    for row in rows:
        cell = table.cells[row["learner"], row["data_set"]]
        for value, prefix in ((cell.ours, ""), (cell.paper, "paper_")):
            parts = (row[f"{prefix}mean"], row[f"{prefix}std"])
            assert parts == (("", "") if value is None else tuple(map(str, value)))
        assert row["note"] == cell.note


def test_every_table_can_be_written_before_anything_was_run():
    for table in make_tables(PaperResults()):
        for write in WRITERS.values():
            assert write(table).endswith("\n")
