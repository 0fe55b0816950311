"""Checkpoints: what is kept, what is found again, and what is refused."""

import errno
import os
import warnings
from itertools import islice

import numpy as np
import pytest
from river.metrics import Accuracy
from river.tree import HoeffdingTreeClassifier
from typer.testing import CliRunner

from driftree import (
    Checkpointer,
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
    FIMTDDRegressor,
    ModelFileError,
    cli,
)
from driftree.evaluate import CheckpointWarning, prequential
from driftree.evaluate.checkpoints import KIND
from driftree.evaluate.runs import CheckpointedTask, RunSettings, run_with_checkpoints
from driftree.learn.storage import atomic, container
from driftree.streams import drifting_agrawal, open_stream, sea
from repeatable import figures


def learnt(n_rows=300, model=None):
    model = model or DynamicModelTreeClassifier(seed=3)
    return model.partial_fit(*next(sea(n_rows, batch_rows=n_rows)))


def state(model, path):
    model.save(path)
    return path.read_bytes()


def fill(folder, *positions, **options):
    with Checkpointer(folder, **options) as checkpointer:
        for position in positions:
            checkpointer.commit(learnt(position), position, {"n": position})
    return folder


# ---------------------------------------------------------------------- by hand
@pytest.mark.parametrize(
    "kind",
    [
        DynamicModelTreeClassifier,
        DynamicModelTreeRegressor,
        DynamicModelForestClassifier,
        DynamicModelForestRegressor,
        FIMTDDClassifier,
        FIMTDDRegressor,
    ],
)
@pytest.mark.parametrize("n_rows", [0, 300])
def test_model_position_and_metrics_come_back_together(tmp_path, kind, n_rows):
    model = learnt(n_rows, kind()) if n_rows else kind()
    metrics = {
        "z first": [1, 2.5, "three", None, True, b"four", (5, -0.0)],
        "nan": float("nan"),
        3: {"f1": np.array([0.5, np.inf]), "counts": np.arange(6).reshape(2, 3)},
        "pairs": (np.array([0.5]), {"a": (1, [2, (np.zeros(0),)])}, ()),
    }
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.resume() is None
        checkpointer.commit(model, n_rows, metrics)
        found = checkpointer.resume()
    assert state(found.model, tmp_path / "a") == state(model, tmp_path / "b")
    assert found.position == n_rows
    assert repr(found.metrics) == repr(metrics)  # the order of keys, types and signs included
    assert checkpointer.positions == [n_rows]


def test_the_last_ones_are_kept_and_what_a_killed_process_left_is_removed(tmp_path):
    fill(tmp_path, 100, 200, 300, keep=2)
    stray = tmp_path / ".driftree-0123456789abcdef.tmp"
    stray.write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        assert checkpointer.positions == [200, 300]
        assert checkpointer.resume().metrics == {"n": 300}
        assert checkpointer.positions == [300]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-000000000300.dmt",
        "lock",
        "notes.txt",
    ]


def test_one_is_due_wherever_a_multiple_was_passed(tmp_path):
    due = []
    with Checkpointer(tmp_path, every=1000, keep=9) as checkpointer:
        for position in range(300, 4000, 300):
            if checkpointer.is_due(position):
                checkpointer.commit(DynamicModelTreeClassifier(), position)
                due.append(position)
    assert due == [1200, 2100, 3000]


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "torn":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = b""
    elif how == "bit":
        data[len(data) // 2] ^= 1
    elif how == "model":  # a whole file, but of another kind
        data = container.to_bytes("driftree model", {}, {})
    elif how == "renamed":
        data = path.with_name("checkpoint-000000000200.dmt").read_bytes()
    elif how == "array":
        contents, arrays = container.from_bytes(bytes(data), KIND)
        data = container.to_bytes(KIND, contents, dict(arrays) | {"metrics.array99": np.zeros(1)})
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["torn", "empty", "bit", "model", "renamed", "array"])
def test_a_damaged_one_is_moved_aside_and_the_one_before_is_resumed(tmp_path, how):
    newest = fill(tmp_path, 100, 200, 300) / "checkpoint-000000000300.dmt"
    damage(newest, how)
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.warns(CheckpointWarning, match=r"0300\.dmt: .*renamed.* resuming from row 200"):
            found = checkpointer.resume()
        assert (found.position, found.metrics) == (200, {"n": 200})
        assert checkpointer.positions == [100, 200]
        checkpointer.commit(found.model, 250)
        assert checkpointer.positions == [100, 200, 250]
    assert newest.with_name(f"{newest.name}.damaged").exists()


def test_where_none_is_whole_nothing_is_begun_anew(tmp_path):
    for path in fill(tmp_path, 100, 200).glob("*.dmt"):
        damage(path, "torn")
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(ModelFileError, match=r"no checkpoint .* is intact.*0200.*0100"):
            checkpointer.resume()
        assert checkpointer.positions == [100, 200]


def test_one_process_at_a_time(tmp_path):
    first = Checkpointer(tmp_path)
    with pytest.raises(BlockingIOError, match="in use by this process already"):
        Checkpointer(tmp_path)
    (tmp_path / "lock").write_text("12345\n")
    with pytest.raises(BlockingIOError, match="in use by process 12345: close that"):
        Checkpointer(tmp_path)
    first.close()
    Checkpointer(tmp_path)  # is gone at once, and its lock with it
    Checkpointer(tmp_path).close()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": HoeffdingTreeClassifier()}, TypeError, "HoeffdingTreeClassifier cannot be in"),
        ({"position": -1}, ValueError, r"position must be a number of rows, .* got -1"),
        ({"position": 2**53 + 1}, ValueError, r"position must be .* at most 2\*\*53, got 9007"),
        ({"position": 10**18}, ValueError, "such as a time, in the metrics"),
        ({"position": 50}, ValueError, r"there is a checkpoint of row 100: continue from what"),
        ({"metrics": {"score": object()}}, TypeError, "one of the metrics is <object"),
        ({"metrics": np.array([True])}, TypeError, "an array of bool with 1 dim"),
    ],
)
def test_what_cannot_be_committed_leaves_all_as_it_was(tmp_path, change, error, words):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.commit(learnt(), 100)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(error, match=words):
            checkpointer.commit(**{"model": learnt(), "position": 200} | change)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_checkpoints_of_an_earlier_process_are_not_passed_over(tmp_path):
    checkpointer = Checkpointer(fill(tmp_path, 100))
    with pytest.raises(ValueError, match="holds checkpoints, the last at row 100: continue from"):
        checkpointer.commit(learnt(), 200)
    checkpointer.close()
    with pytest.raises(ValueError, match="is closed"):
        checkpointer.resume()


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
@pytest.mark.parametrize("name", ["every", "keep"])
def test_numbers_are_checked(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got"):
        Checkpointer(tmp_path, **{name: value})


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_error_of_the_disk_is_told_and_leaves_no_part(tmp_path, monkeypatch, call):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Checkpointer(fill(tmp_path, 100)) as checkpointer:
        model = checkpointer.resume().model
        with monkeypatch.context() as patch:
            patch.setattr(atomic.os, call, fail)
            with pytest.raises(OSError, match=r"row 200 could not .*, that of row 100 is intact"):
                checkpointer.commit(model, 200)
        assert checkpointer.resume().position == 100
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-000000000100.dmt", "lock"]


# ---------------------------------------------------------------------- test, then train
@pytest.mark.parametrize(
    "options", [{}, {"delay": 130}, {"delay": 130, "step_rows": 7}, {"pretrain": False}]
)
@pytest.mark.parametrize("is_drawn", [True, False])
@pytest.mark.parametrize("kind", [DynamicModelTreeClassifier, DynamicModelTreeRegressor])
def test_an_evaluation_goes_on_as_if_it_had_never_been_interrupted(
    tmp_path, options, is_drawn, kind
):
    def evaluate(folder, n_records=None):
        model = kind()
        rows = sea(1000, batch_rows=100)
        stream = rows if is_drawn else open_stream(rows, batch=70)
        with Checkpointer(tmp_path / folder, every=200) as checkpointer:
            records = []
            for record in prequential(model, stream, checkpointer=checkpointer, **options):
                records.append(record)
                if len(records) == n_records:
                    break
        return figures(records), state(model, tmp_path / "model")

    whole = evaluate("whole")
    for n_records in (1, 4, 5, 8):
        evaluate("part", n_records)
    assert evaluate("part") == whole
    assert evaluate("part") == whole  # what has ended does not learn again
    stream = open_stream(sea(1000, batch_rows=100), batch=100 if is_drawn else 70)
    assert figures(prequential(kind(), stream, **options)) == whole[0]


def test_metrics_that_miss_rows_are_told_of(tmp_path):
    def evaluate(n_records=None, **options):
        with Checkpointer(tmp_path, every=100) as checkpointer:
            stream = sea(600, batch_rows=100)
            records = prequential("dmt", stream, checkpointer=checkpointer, **options)
            return list(islice(records, n_records))

    evaluate(3, metrics=[Accuracy()])
    with pytest.warns(CheckpointWarning, match="do not count the first 400 rows"):
        evaluate(metrics=[Accuracy()])
    evaluate()  # without metrics, without a warning


def test_an_evaluation_of_rows_goes_on_although_features_come_late(tmp_path):
    draw = np.random.default_rng(1).normal(size=(700, 3))
    rows = [
        ({"a": a, "b": b, **({"late": late} if i > 350 else {})}, int(a > b))
        for i, (a, b, late) in enumerate(draw.tolist())
    ]

    def evaluate(folder, n_records=None):
        model, stream = DynamicModelTreeClassifier(), open_stream(rows, batch=100)
        with Checkpointer(tmp_path / folder, every=100) as checkpointer:
            options = {"checkpointer": checkpointer, "delay": 130}
            records = list(islice(prequential(model, stream, **options), n_records))
        return figures(records), state(model, tmp_path / "model")

    for n_records in (1, 2, 4):
        evaluate("part", n_records)
    assert evaluate("part") == evaluate("whole")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "dmt-paper"}, "name was 'dmt', is 'dmt-paper'"),
        ({"model": DynamicModelTreeClassifier(bins=8)}, "bins of the learner was 'None', is '8'"),
        ({"delay": 3}, "delay was 0, is 3"),
        ({"stream": sea(100, batch_rows=50)}, "does not have the 200 rows"),
        ({"stream": sea(1000, batch_rows=150)}, "does not have the 200 rows"),
        ({"stream": open_stream(sea(1000), batch=50)}, "batch_rows was None, is 50"),
        ({"model": {"a": "dmt", "b": "dmt"}}, "one learner, not a, b"),
    ],
)
def test_another_evaluation_is_not_gone_on_with(tmp_path, change, words):
    given = {"model": "dmt", "stream": sea(1000, batch_rows=50)}
    with Checkpointer(tmp_path, every=200) as checkpointer:
        for record in prequential(**given, checkpointer=checkpointer):
            if record.n_rows == 200:
                break
        given["stream"] = sea(1000, batch_rows=50)
        with pytest.raises(ValueError, match=words):
            list(prequential(**given | change, checkpointer=checkpointer))


def test_a_parameter_that_a_checkpoint_does_not_know_had_its_default(tmp_path):
    def evaluate(**parameters):
        model, stream = DynamicModelTreeClassifier(**parameters), sea(300, batch_rows=100)
        with Checkpointer(tmp_path) as checkpointer:
            return list(prequential(model, stream, checkpointer=checkpointer))

    evaluate()
    with Checkpointer(tmp_path) as checkpointer:
        found = checkpointer.resume()
        del found.metrics["facts"]["threshold of the learner"]
        checkpointer.commit(*found)
    assert len(evaluate()) == 2
    with pytest.raises(ValueError, match=r"another run \(threshold of the learner was 'None', is"):
        evaluate(threshold={"recall": 0.8})


def test_another_version_is_told_of(tmp_path, monkeypatch):
    def evaluate():
        stream = sea(300, batch_rows=100)
        with Checkpointer(tmp_path) as checkpointer:
            return list(prequential("dmt", stream, checkpointer=checkpointer))

    evaluate()
    monkeypatch.setattr("driftree.evaluate.resuming.__version__", "99.0")
    with pytest.warns(CheckpointWarning, match=r"started by driftree 0.* resumed by 99\.0"):
        evaluate()


@pytest.mark.parametrize(
    "kind", [DynamicModelTreeClassifier, DynamicModelForestClassifier, FIMTDDClassifier]
)
def test_checkpoints_from_before_splits_were_inner_nodes_are_gone_on_with(tmp_path, kind):
    """What is now `n_paper_splits` was then called `n_splits`."""

    def evaluate(n_records=None):
        stream = drifting_agrawal(4000, batch_rows=400)
        with Checkpointer(tmp_path, every=400) as checkpointer:
            return list(islice(prequential(kind(), stream, checkpointer=checkpointer), n_records))

    before = evaluate(6)
    with Checkpointer(tmp_path) as checkpointer:
        found = checkpointer.resume()
        columns = found.metrics["records"]
        columns["n_splits"] = columns.pop("n_paper_splits")
        checkpointer.commit(*found)
    records = evaluate()
    assert len(records) == 9
    assert figures(records[: len(before)]) == figures(before)
    assert before[-1].n_splits > 0


# ---------------------------------------------------------------------- the command
@pytest.mark.parametrize("model", ["fimtdd", "dmt"])
def test_a_run_of_numbers_is_resumed(table, model):
    settings = RunSettings(source=str(table), learners=(model,), batch=50, task="regression")
    found = []
    for folder, stops in (("whole", [None]), ("parts", [100, 300, None])):
        for stops_at in stops:
            with Checkpointer(table.parent / folder, every=50) as checkpointer:
                task = CheckpointedTask(settings, table.parent / "records.csv", checkpointer)
                seen = [0]
                result = run_with_checkpoints(
                    task,
                    lambda done, *_, seen=seen: seen.append(done),
                    lambda seen=seen, last=stops_at: seen[-1] == last,
                )
        found.append((figures(result.records), (table.parent / "records.csv").read_text()))
    assert found[0] == found[1]
    assert "mae" in found[0][1]


@pytest.fixture
def table(tmp_path):
    X, y = next(sea(500, batch_rows=500))
    path = tmp_path / "table.csv"
    lines = [",".join(map(str, [*x, label])) for x, label in zip(X.tolist(), y, strict=True)]
    path.write_text("\n".join(["a,b,c,label", *lines, ""]))
    return path


def run(table, *more):
    folder = table.parent
    options = ["--batch", "50", "--out", str(folder / "out")]
    if "--overwrite" not in more:
        more = (*more, "--resume")
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["run", str(table), *options, *more])


def test_a_damaged_checkpoint_is_told_of_and_the_run_ends_as_it_should(table):
    assert run(table, "--checkpoint-every", "100").exit_code == 0
    out = table.parent / "out"
    names = ("model.dmt", "records.csv", "labels.csv", "report.html", "summary.json")
    before = {name: (out / name).read_bytes() for name in names}
    newest = sorted((out / "checkpoints").glob("*.dmt"))[-1]
    damage(newest, "torn")
    (out / "report.html").write_bytes(b"half a page")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = run(table, "--checkpoint-every", "100")
    assert again.exit_code == 0
    assert f"driftree: warning: {newest}: the file is truncated" in again.output
    assert "; resuming from row 400" in again.output
    assert {name: (out / name).read_bytes() for name in names} == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "fimtdd"], "learners was ('dmt',), is ('fimtdd',)"),
        (["--seed", "7"], "seed was 1, is 7"),
        (["--rows", "400"], "n_rows was None, is 400"),
        (["--batch", "20"], "batch was 50, is 20"),
        (["--model", "vfdt-nba"], "vfdt-nba cannot have checkpoints, which hold no code"),
        (["--model", "dmt,fimtdd"], "one learner, not dmt, fimtdd"),
        ([], "SHA-256 of"),
    ],
)
def test_another_run_is_not_gone_on_with(table, options, words):
    assert run(table).exit_code == 0
    out = everything_in(table.parent / "out")
    if not options:
        table.write_text(table.read_text().replace("\n", "\n\n", 1))  # a blank line is no row
    again = run(table, *options)
    assert again.exit_code == 2
    assert words in again.output
    assert everything_in(table.parent / "out") == out


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_was_moved_is_gone_on_with(table):
    assert run(table).exit_code == 0
    (table.parent / "out").rename(table.parent / "moved")
    again = run(table, "--out", str(table.parent / "moved"))
    assert again.exit_code == 0, again.output


def test_checkpoints_are_overwritten_only_when_asked(table):
    folder = table.parent / "out" / "checkpoints"
    runner = CliRunner(env={"COLUMNS": "200"})
    begin = ["run", str(table), "--batch", "50", "--out", str(folder.parent)]
    often = [*begin, "--checkpoint-every", "100"]
    assert runner.invoke(cli.app, often).exit_code == 0
    before = everything_in(folder.parent)
    assert len(list(folder.glob("*.dmt"))) == 3
    for other in (begin, often):
        refused = runner.invoke(cli.app, other)
        assert refused.exit_code == 2
        assert "add --resume to continue, --overwrite to replace it" in refused.output
    both = runner.invoke(cli.app, [*often, "--resume", "--overwrite"])
    assert "give only one" in both.output
    with Checkpointer(folder):
        busy = runner.invoke(cli.app, [*begin, "--overwrite"])
        assert "is in use by this process already" in busy.output
    lock = folder / "lock"
    assert everything_in(folder.parent) | {lock: b""} == before | {lock: b""}
    seven = runner.invoke(cli.app, [*often, "--overwrite", "--seed", "7"])
    assert seven.exit_code == 0, seven.output
    plain = runner.invoke(cli.app, [*begin, "--overwrite"])
    assert plain.exit_code == 0, plain.output
    assert not list(folder.glob("*.dmt"))
    without = runner.invoke(cli.app, [*begin, "--resume"])
    assert "an earlier run without checkpoints, which cannot be resumed" in without.output


def test_malformed_rows_are_counted_even_if_none_is_read_again(table):
    """Stopped at the last row that was asked for, a run has nothing to read when it goes on."""
    lines = table.read_text().splitlines()
    lines[120] = "1,2,three,0"
    table.write_text("\n".join([*lines, ""]))
    settings = RunSettings(
        source=str(table), learners=("dmt",), batch=50, n_rows=200, on_bad_row="skip"
    )
    results = []
    for stops_at in (200, None):
        with Checkpointer(table.parent / "kept") as checkpointer:
            task = CheckpointedTask(settings, table.parent / "records.csv", checkpointer)
            seen = []
            result = run_with_checkpoints(
                task,
                lambda done, *_, seen=seen: seen.append(done),
                lambda seen=seen, last=stops_at: seen[-1] == last,
            )
        results.append((result.run.is_complete, result.run.n_bad_rows, result.run.bad_rows[0].line))
    assert results == [(False, 1, 121), (True, 1, 121)]


def test_what_cannot_be_gone_on_with_is_not_begun(table):
    folder = table.parent
    runner = CliRunner()
    piped = ["run", "-", "--resume", "--out", str(folder / "out")]
    assert "cannot be read again" in runner.invoke(cli.app, piped).output
    assert not (folder / "out").exists()
    (folder / "out").mkdir()
    (folder / "out" / "records.csv").write_text("of another run\n")
    assert "holds results of an earlier run" in run(table).output
    assert (folder / "out" / "records.csv").read_text() == "of another run\n"
    (folder / "out" / "records.csv").unlink()
    with Checkpointer(folder / "out" / "checkpoints"):
        busy = run(table)
    assert busy.exit_code == 2
    assert "out/checkpoints is in use by this process already" in busy.output
