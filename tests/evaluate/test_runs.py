"""Runs on files and data sets."""

import csv
import os

import numpy as np
import pytest

from driftree.evaluate import read_records
from driftree.evaluate import runs as runs_module
from driftree.evaluate.runs import RunSettings, RunTask, merge_records, open_source, run_stream
from driftree.streams import agrawal
from repeatable import figures


def figures_in(path):
    return figures(read_records(path))


@pytest.fixture
def loans(tmp_path):
    """A CSV file of 3,000 loan applications."""
    X, y = next(agrawal(3000, batch_rows=3000, function=2))
    path = tmp_path / "loans.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"feature {j}" for j in range(9)), "granted"])
        for row, label in zip(X.tolist(), y.tolist(), strict=True):
            writer.writerow([*row, "yes" if label else "no"])
    return path


def settings_for(source, **changes):
    return RunSettings(**{"source": str(source), "learners": ("dmt", "vfdt-mc"), **changes})


def run(task, stop_after=None):
    steps = []

    def should_stop():
        steps.append(1)
        return len(steps) == stop_after

    return run_stream(task, lambda *_: None, should_stop)


def test_a_file_is_run_and_recorded(loans, tmp_path):
    told = []
    task = RunTask(settings_for(loans, batch=0.1), tmp_path / "records.csv")
    result = run_stream(task, lambda *args: told.append(args), lambda: False)
    assert result.is_complete
    assert (result.n_rows, result.n_bad_rows) == (3000, 0)
    records = read_records(task.records)
    assert [record.learner for record in records[:2]] == ["dmt", "vfdt-mc"]
    assert len(records) == 18  # nine batches for each; the first only trains
    assert told[-1][:2] == (3000, 3000)
    assert result.learners["dmt"].predict_one({"feature 2": 30.0}) in ("yes", "no")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_stopped_run_says_so_and_keeps_its_records(loans, tmp_path, suffix):
    task = RunTask(settings_for(loans, batch=250), tmp_path / f"part.{suffix}")
    assert not run(task, stop_after=7).is_complete
    whole = RunTask(settings_for(loans, batch=250), tmp_path / f"whole.{suffix}")
    run(whole)
    figures = figures_in(task.records)
    assert len(figures) == 12
    assert figures == figures_in(whole.records)[:12]
    assert sorted(os.listdir(tmp_path)) == ["loans.csv", f"part.{suffix}", f"whole.{suffix}"]


def test_malformed_rows_are_counted(loans, tmp_path):
    lines = loans.read_text().splitlines(keepends=True)
    lines[1500] = lines[1500].replace(",", ";")
    loans.write_text("".join(lines))
    task = RunTask(settings_for(loans, batch=500), tmp_path / "records.csv")
    with pytest.raises(ValueError, match="line 1501"):
        run(task)
    assert [record.n_rows for record in read_records(task.records)][-1] == 1499  # nothing is lost
    skipping = RunTask(settings_for(loans, batch=500, on_bad_row="skip"), tmp_path / "skipped.csv")
    result = run(skipping)
    assert (result.n_rows, result.n_bad_rows, result.bad_rows[0].line) == (2999, 1, 1501)


@pytest.mark.parametrize(
    ("batch", "n_lines", "expected"), [(None, 3000, 100), (0.1, 3000, 300), (7, 3000, 7)]
)
def test_batches_are_as_large_as_asked(loans, batch, n_lines, expected):
    assert open_source(settings_for(loans, batch=batch)).batch_rows == expected


@pytest.mark.parametrize("batch", [None, 7, 0.1])
def test_progress_knows_the_whole(loans, batch):
    assert open_source(settings_for(loans, batch=batch)).n_rows == 3000


def test_large_streams_have_batches_of_a_thousandth(tmp_path, monkeypatch):
    monkeypatch.setattr(runs_module, "SMALLEST_BATCH", 2)
    path = tmp_path / "long.csv"
    path.write_text("a,b\n" + "1,0\n" * 3000)
    assert open_source(settings_for(path)).batch_rows == 3


def test_what_is_neither_file_nor_data_set_is_named():
    with pytest.raises(ValueError, match=r"no file 'electricty'.*did you mean electricity"):
        open_source(settings_for("electricty"))


def test_records_of_several_learners_are_merged_step_by_step(loans, tmp_path):
    together = RunTask(settings_for(loans, batch=500), tmp_path / "together.csv")
    run(together)
    paths = []
    for name in ("dmt", "vfdt-mc"):
        paths.append(tmp_path / f"{name}.csv")
        run(RunTask(settings_for(loans, batch=500, learners=(name,)), paths[-1]))
    merge_records(paths, tmp_path / "merged.csv")
    assert figures_in(tmp_path / "merged.csv") == figures_in(together.records)
    assert np.isfinite([record.f1 for record in read_records(tmp_path / "merged.csv")]).all()
