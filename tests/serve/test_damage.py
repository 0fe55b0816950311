"""Damage: what was acknowledged is there, or the server does not start and says why."""

import errno
import json
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftree.learn.storage import container
from driftree.serve.app import make_app
from driftree.serve.journal import HEADER, Journal, JournalError, read_journal, segments, to_frame
from driftree.serve.recovery import open_model
from driftree.serve.requests import LearnBatch
from driftree.serve.writer import Task
from serving import ask, draw_batches, learn_offline, to_bytes

BATCHES = draw_batches(8, most_rows=3)


def commit(writer, batches):
    """Let a writer learn each batch by itself."""
    for batch in batches:
        task = Task(batch)
        writer.commit([task])
        assert task.answer.exception() is None


def release(recovered):
    """Let go of the files as the end of a process does."""
    recovered.writer.journal.close()
    os.close(recovered.lock)


def everything(folder):
    """Return all files of a server but the lock."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The files of a server that was killed: 3 batches in the model, 5 in the journal."""
    folder = tmp_path_factory.mktemp("killed")
    recovered = open_model(folder / "model.dmt", new=True)
    commit(recovered.writer, BATCHES[:3])
    recovered.writer.save()
    commit(recovered.writer, BATCHES[3:])
    release(recovered)
    return folder


@pytest.fixture
def path(killed, tmp_path):
    """The model file of a copy."""
    return shutil.copytree(killed, tmp_path / "copy") / "model.dmt"


def log_of(path):
    [log] = segments(path.with_name("model.dmt.journal"))
    return log


def ends_of(data):
    """Return where the frames of a segment end."""
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + HEADER.size + HEADER.unpack_from(data, ends[-1])[1])
    return ends[1:]


# ---------------------------------------------------------------------- journals that were changed
def change(log, edit):
    log.write_bytes(edit(log.read_bytes()))


def zeros(data, start):
    return data[:start] + bytes(len(data) - start)


HARMS = {
    "no segment": lambda log: log.unlink(),
    "no folder": lambda log: shutil.rmtree(log.parent),
    "empty folder": lambda log: [one.unlink() for one in log.parent.iterdir()],
    "empty": lambda log: change(log, lambda data: b""),
    "only the head": lambda log: change(log, lambda data: data[: ends_of(data)[0]]),
    "one batch less": lambda log: change(log, lambda data: data[: ends_of(data)[-2]]),
    "one byte less": lambda log: change(log, lambda data: data[:-1]),
    "zeros over one batch": lambda log: change(log, lambda data: zeros(data, ends_of(data)[-2])),
    "zeros over all batches": lambda log: change(log, lambda data: zeros(data, ends_of(data)[0])),
    "zeros over all": lambda log: change(log, lambda data: bytes(len(data))),
    "another name": lambda log: log.rename(log.with_name("moved.log")),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_journal_without_what_was_acknowledged_is_not_passed_over(path, harm):
    HARMS[harm](log_of(path))
    before = everything(path.parent)
    for _ in range(2):  # and it does not help to try again
        with pytest.raises(JournalError) as error:
            open_model(path)
        assert str(path.parent) in str(error.value)
        assert "--without-journal" in str(error.value)
    assert everything(path.parent) == before


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_happens_to_a_segment_it_is_told_or_nothing_is_lost(
    killed, tmp_path_factory, data
):
    path = tmp_path_factory.mktemp("copies") / "copy" / "model.dmt"
    shutil.copytree(killed, path.parent)
    log = log_of(path)
    content = bytearray(log.read_bytes())
    start = data.draw(st.integers(0, len(content)), label="start")
    stop = data.draw(st.integers(start, len(content)), label="stop")
    filling = data.draw(st.sampled_from(["cut", "zeros", "junk", "twice"]), label="filling")
    length = stop - start
    content[start:stop] = {
        "cut": b"",
        "zeros": bytes(length),
        "junk": b"\x89dmt" * length,
        "twice": content[start:stop] * 2,
    }[filling]
    log.write_bytes(content)
    try:
        recovered = open_model(path)
    except JournalError:
        return
    assert to_bytes(recovered.writer.model) == to_bytes(learn_offline(BATCHES))
    release(recovered)


def test_an_older_file_or_an_older_journal_is_told(path, tmp_path):
    older = shutil.copytree(path.parent, tmp_path / "older")
    recovered = open_model(path)
    assert recovered.n_batches == 5  # which are saved now, and the journal is empty
    release(recovered)
    newer = path.read_bytes()
    path.write_bytes((older / "model.dmt").read_bytes())
    with pytest.raises(JournalError, match=r"contains batches up to 3, but .* begins with 9"):
        open_model(path)
    path.write_bytes(newer)
    log_of(path).unlink()
    log = log_of(older / "model.dmt")
    cut = log.read_bytes()
    (path.with_name("model.dmt.journal") / log.name).write_bytes(cut[: ends_of(cut)[2]])
    with pytest.raises(JournalError, match=r"contains batches up to 8, but .* ends with 5"):
        open_model(path)


def test_on_demand_it_goes_on_without_a_journal(path):
    with pytest.raises(ValueError, match="has a journal: omit --without-journal"):
        open_model(path, without_journal=True)
    shutil.rmtree(path.with_name("model.dmt.journal"))
    recovered = open_model(path, without_journal=True)
    assert to_bytes(recovered.writer.model) == to_bytes(learn_offline(BATCHES[:3]))
    commit(recovered.writer, BATCHES[3:])
    release(recovered)
    again = open_model(path)
    assert to_bytes(again.writer.model) == to_bytes(learn_offline(BATCHES))
    release(again)


def test_a_lost_count_is_told(path):
    (path.with_name("model.dmt.journal") / "acknowledged").unlink()
    recovered = open_model(path)
    assert (recovered.is_counted, recovered.writer.sequence) == (False, 8)
    release(recovered)
    again = open_model(path)
    assert again.is_counted
    release(again)


def test_a_torn_tail_is_cut_and_counted(path):
    log, group = log_of(path), [batch.to_text() for batch in draw_batches(7, seed=9)]
    frame = to_frame(9, group)
    whole = log.read_bytes()
    for n in range(1, len(frame), 11):
        for tail in (frame[:n], frame[:n] + bytes(len(frame) - n), bytes(n)):
            log.write_bytes(whole + tail)
            found = read_journal(log.parent)
            assert (found.n_cut, found.last) == (len(tail), 8)
            assert len(group) <= found.n_torn <= 64
    log.write_bytes(whole)
    with open(log, "ab") as file:
        file.write(frame[:-1])
    recovered = open_model(path)
    assert (recovered.n_cut, recovered.writer.sequence) == (len(frame) - 1, 8)
    release(recovered)


@pytest.mark.parametrize("harm", ["unlink", "truncate"])
def test_a_journal_that_is_harmed_while_it_is_written_acknowledges_nothing(tmp_path, harm):
    path = tmp_path / "model.dmt"
    recovered = open_model(path, new=True)
    commit(recovered.writer, BATCHES[:2])
    if harm == "unlink":
        shutil.rmtree(log_of(path).parent)
    else:
        os.truncate(log_of(path), 100)
    task = Task(BATCHES[2])
    with pytest.raises(OSError, match="deleted or changed"):
        recovered.writer.commit([task])
    assert task.answer.exception().status == 503
    release(recovered)
    with pytest.raises(JournalError):
        open_model(path)


# ---------------------------------------------------------------------- crafted records
GOOD = json.loads(BATCHES[0].to_text())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
CRAFTED = [b"", b"{", b"[]", b"{}", b"[" * 9999, b"9" * 9999, b"\xff", b'{"rows": []}']


def refuse_record(folder, text):
    """Open a journal with one record; only a `JournalError` may say that it is none."""
    path = folder / "model.dmt"
    release(open_model(path, new=True))
    log = log_of(path)
    log.write_bytes(log.read_bytes() + to_frame(1, [text]))
    try:
        recovered = open_model(path)
    except JournalError as error:
        return str(error)
    release(recovered)
    return None


@pytest.mark.parametrize("text", CRAFTED)
def test_a_record_that_is_no_batch_is_told(tmp_path, text):
    words = str(refuse_record(tmp_path, text))
    assert "record 1 was learnt before, but is refused now (it is not" in words


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from(["rows", "labels", "weights", "key", "more"]), value=VALUES)
def test_a_crafted_record_is_learnt_or_told(tmp_path_factory, key, value):
    text = json.dumps(GOOD | {key: value}).encode()
    words = refuse_record(tmp_path_factory.mktemp("crafted"), text)
    assert words is None or "record 1 was learnt before" in words


# ---------------------------------------------------------------------- models that cannot be saved
ERRORS = {
    "disk": OSError(errno.ENOSPC, "No space left on device"),
    "permission": PermissionError(errno.EACCES, "Permission denied"),
    "size": ValueError("names take too much"),
    "type": TypeError("a level is not for a file"),
    "memory": MemoryError(),
}


@pytest.mark.parametrize(("where", "name"), [(container, "replace_file"), (Journal, "prepare")])
@pytest.mark.parametrize("cause", ERRORS)
def test_a_server_that_cannot_save_goes_on_stops_and_starts_again(
    path, monkeypatch, cause, where, name, caplog
):
    def fail(*_):
        raise ERRORS[cause]

    more = draw_batches(6, seed=5, most_rows=3)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, fail)
        for batches in (more[:3], more[3:]):
            recovered = open_model(path, snapshot_every=1)
            writer = recovered.writer
            writer.start()
            for batch in batches:
                writer.submit(batch).result(30)
            health = ask(make_app(writer), "GET", "/health")
            assert (health.status, health.json["status"]) == (200, "degraded")
            assert health.json["learning"]
            assert "could not be saved" in health.json["problem"]
            assert str(path.parent) not in health.json["problem"]
            writer.close()
            assert writer.failure is None
            os.close(recovered.lock)
    assert "could not be saved" in caplog.text
    recovered = open_model(path)
    assert to_bytes(recovered.writer.model) == to_bytes(learn_offline([*BATCHES, *more]))
    recovered.writer.save()
    assert ask(make_app(recovered.writer), "GET", "/health").json["status"] == "ok"
    release(recovered)


def test_it_is_well_again_once_the_model_is_saved(path, monkeypatch):
    def fail(*_):
        raise ERRORS["disk"]

    recovered = open_model(path)
    with monkeypatch.context() as patch:
        patch.setattr("driftree.learn.storage.container.replace_file", fail)
        assert not recovered.writer.try_save()
    assert "No space left on device" in recovered.writer.problem
    assert recovered.writer.try_save()
    assert recovered.writer.problem is None
    release(recovered)


def test_a_model_that_fits_no_file_cannot_be_fetched_but_says_why(path, monkeypatch):
    recovered = open_model(path)
    monkeypatch.setattr("driftree.learn.storage.manifest.MAX_LENGTH", 10)
    answer = ask(make_app(recovered.writer), "GET", "/model/file")
    assert (answer.status, "take" in answer.json["detail"]) == (409, True)
    release(recovered)


ASTRAL = "\U0001f600" * 980  # 3,920 bytes of a request, 11,760 of a model file


def names(i):
    return words(i) if i > 0 else LearnBatch([{"a": 1.0}] * 20, ["up"] * 20)  # not sparse


def words(i):
    return LearnBatch([{f"{i} {j} {ASTRAL}": 1.0 for j in range(80)}], ["up"])


def levels(i):
    rows = [{f"{i} {j}": f"{k} {ASTRAL}" for j in range(5)} for k in range(32)]
    return LearnBatch(rows, ["up"] * 32)


def labels(i):
    marks = [f"{i} {j} {ASTRAL}" for j in range(80)]
    return LearnBatch([{"a": 1.0}] * 80, marks)


@pytest.mark.parametrize("brings", [names, words, levels, labels])
def test_no_client_can_make_a_model_that_cannot_be_saved(tmp_path, brings):
    path, learnt, refused = tmp_path / "model.dmt", [], None
    recovered = open_model(path, new=True)
    for i in range(12):
        task = Task(brings(i))
        assert len(task.batch.to_text()) < 2**22
        recovered.writer.commit([task])
        if (refused := task.answer.exception()) is not None:
            break
        learnt.append(task.batch)
    if brings is words:  # however many: rare ones give way
        assert refused is None
    else:
        assert (refused.status, "as text in a model file" in refused.words) == (422, True)
    assert ask(make_app(recovered.writer), "GET", "/model/file").status == 200
    release(recovered)
    again = open_model(path)
    assert (again.writer.sequence, again.writer.problem) == (len(learnt), None)
    release(again)
