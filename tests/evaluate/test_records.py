"""Records in files, and summed up."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from driftree.evaluate import (
    Record,
    RecordFile,
    label_blocks,
    prequential,
    read_records,
    slide,
    summarise,
)
from driftree.evaluate.records import FIELDS, fields_of, write_records
from driftree.streams import sea


def make_record(step=1, **changes):
    record = Record(
        learner="dmt, the 1st",
        step=step,
        n_rows=100 * step,
        f1=0.1 + 0.2,
        accuracy=1 / 3,
        kappa=math.nan,
        log_loss=1e-17,
        n_splits=3,
        n_paper_splits=7,
        n_parameters=None,
        n_nodes=7,
        depth=2,
        predict_seconds=1.5,
        learn_seconds=2.5,
        memory=None,
        confusion=None if "mae" in changes else {'a "b", c': {"(nothing)": 3}},
    )
    return replace(record, **changes)


def test_a_record_does_not_change():
    record = make_record()
    with pytest.raises(FrozenInstanceError):
        record.f1 = 1.0
    assert record.seconds == 4.0


NUMBERS = {"f1": math.nan, "accuracy": math.nan, "kappa": math.nan, "log_loss": math.nan}
NUMBERS |= {"mae": 0.1 + 0.2, "rmse": math.inf, "r2": -math.inf}  # it diverged


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("scores", [{}, NUMBERS], ids=["labels", "numbers"])
def test_what_was_written_is_read(tmp_path, suffix, scores):
    records = [make_record(step, n_splits=step, **scores) for step in range(1, 6)]
    path = tmp_path / f"records.{suffix}"
    with RecordFile(path) as file:
        for i, record in enumerate(records):
            file.write(record)
            assert len(read_records(path)) == i + 1  # as they come, not at the end
    assert str(read_records(path)) == str(records)  # NaN is not equal to itself


def test_files_from_before_labels_were_counted_are_read(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("learner,step,n_rows,f1,accuracy,kappa,log_loss\ndmt,1,100,0.5,0.5,0.1,0.7\n")
    [record] = read_records(path)
    assert (record.f1, record.confusion) == (0.5, None)
    assert math.isnan(record.macro_f1)
    assert label_blocks([record]) == []


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_splits_in_files_from_before_they_were_inner_nodes_are_the_papers(tmp_path, suffix):
    path = tmp_path / f"records.{suffix}"
    write_records(path, [make_record()])
    old = path.read_text().replace("n_splits", "n_inner").replace("n_paper_splits", "n_splits")
    path.write_text(old)
    [record] = read_records(path)
    assert (record.n_splits, record.n_paper_splits) == (None, 7)
    assert np.isnan(summarise([record])[record.learner]["n_splits"].mean)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_half_a_line_is_no_record(tmp_path, suffix):
    path = tmp_path / f"records.{suffix}"
    with RecordFile(path) as file:
        file.write(make_record(1))
        file.write(make_record(2))
    text = path.read_text()
    for n_lost in range(1, len(text.splitlines()[-1])):
        path.write_text(text[:-n_lost])
        assert [record.step for record in read_records(path)] == [1]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_records_written_at_once_are_those_written_one_by_one(tmp_path, suffix):
    records = [make_record(1), make_record(2)]
    with RecordFile(tmp_path / f"one.{suffix}") as file:
        for record in records:
            file.write(record)
    write_records(tmp_path / f"all.{suffix}", iter(records))
    one, at_once = (tmp_path / f"{name}.{suffix}" for name in ("one", "all"))
    assert one.read_bytes() == at_once.read_bytes()


@pytest.mark.parametrize("scores", [{}, NUMBERS], ids=["labels", "numbers"])
def test_a_file_has_the_scores_of_its_task_only(tmp_path, scores):
    path, record = tmp_path / "records.csv", make_record(**scores)
    write_records(path, [record])
    header = path.read_text().splitlines()[0].split(",")
    assert tuple(header) == fields_of(record.task)
    assert ("f1" in header) != ("mae" in header)
    assert ("f1" in summarise([record])["dmt, the 1st"]) == ("f1" in header)


def test_a_file_is_of_one_task(tmp_path):
    with pytest.raises(ValueError, match="of classification cannot hold a record of regression"):
        write_records(tmp_path / "records.csv", [make_record(), make_record(**NUMBERS)])


@pytest.mark.parametrize("write", [RecordFile, lambda path: write_records(path, [])])
def test_records_go_to_files_of_two_kinds(tmp_path, write):
    with pytest.raises(ValueError, match=r"\.csv or \.jsonl"):
        write(tmp_path / "records.txt")


def test_summary_is_mean_and_standard_deviation_of_what_is_known():
    records = [make_record(1, f1=0.5, memory=10), make_record(2, f1=0.7)]
    summary = summarise(records)["dmt, the 1st"]
    assert summary["f1"] == pytest.approx((0.6, 0.1))
    assert summary["memory"] == (10, 0)
    assert summary["seconds"] == (4, 0)
    assert np.isnan(summary["kappa"].mean)
    assert np.isnan(summary["n_parameters"].mean)
    assert str(summary["f1"]) == "0.600 ± 0.100"


def test_summary_has_every_learner_in_order():
    records = prequential({"no-change": "no-change", "majority": "majority"}, sea(3000))
    assert list(summarise(records)) == ["no-change", "majority"]


def test_sliding_window_equals_the_obvious_computation():
    values = np.random.default_rng(1).random(50)
    values[7] = math.nan
    mean, std = slide(values, window=20)
    for i in range(50):
        part = values[max(0, i - 19) : i + 1]
        assert mean[i] == pytest.approx(np.nanmean(part))
        assert std[i] == pytest.approx(np.nanstd(part))
    with pytest.raises(ValueError, match="window"):
        slide(values, window=0)


def test_fields_are_those_of_the_record():
    assert tuple(Record.__slots__) == FIELDS


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_names_may_hold_line_breaks(tmp_path, suffix):
    names = ["a\rb", 'c,\n"d"', "e\r\nf"]
    path = tmp_path / f"records{suffix}"
    write_records(path, [make_record(learner=name) for name in names])
    assert [record.learner for record in read_records(path)] == names


def test_a_summary_of_a_learner_that_diverges():
    records = [make_record(step, mae=10.0 ** (150 * step)) for step in (1, 2)]
    assert summarise(records)["dmt, the 1st"]["mae"].std == math.inf
