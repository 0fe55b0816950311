"""The writer: nothing acknowledged is lost, nothing is learnt twice, wherever the process ends."""

import errno
import os
import re
import shutil
import threading

import pytest

from driftree import DynamicModelTreeClassifier, load
from driftree.learn.storage import atomic
from driftree.serve import journal as journal_module
from driftree.serve.journal import JournalError
from driftree.serve.recovery import open_model
from driftree.serve.requests import LearnBatch, Limits, Refusal
from driftree.serve.writer import REMEMBERED, Learnt, LearntKeys, Task, Writer
from serving import draw_batches, learn_offline, to_bytes

CALLS = ("open", "write", "pwrite", "fsync", "ftruncate", "replace", "unlink")


class Crash(BaseException):
    """The process ends here."""


class CrashingOs:
    """`os`, in which the process ends at the n-th call that concerns files."""

    def __init__(self, n):
        self.n_left = n

    def __getattr__(self, name):
        call = getattr(os, name)
        if name not in CALLS:
            return call

        def crash(*arguments, **options):
            self.n_left -= 1
            if self.n_left == 0:
                if name == "write":  # a part of it may have been written
                    call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Crash
            return call(*arguments, **options)

        return crash


def commit(writer, batches):
    """Let a writer learn in this thread; return the tasks."""
    tasks = [Task(batch) for batch in batches]
    writer.commit(tasks)
    writer._save_if_due()
    return tasks


def release(recovered):
    """Let go of the files as the end of a process does."""
    recovered.writer.journal.close()
    os.close(recovered.lock)


@pytest.mark.parametrize("are_numbers", [False, True], ids=["labels", "numbers"])
def test_wherever_the_process_ends_what_was_acknowledged_is_there(
    tmp_path, monkeypatch, are_numbers
):
    batches = draw_batches(8, most_rows=4, are_numbers=are_numbers)
    groups = [batches[:1], batches[1:4], batches[4:7], batches[7:]]
    whole, n_crashes = to_bytes(learn_offline(batches, are_numbers=are_numbers)), 0
    task = "regression" if are_numbers else "classification"
    for n in range(1, 1000):
        path = tmp_path / str(n) / "model.dmt"
        path.parent.mkdir()
        first = open_model(path, new=True, snapshot_every=8, task=task)
        acknowledged, ended = [], True
        with monkeypatch.context() as patch:
            crashing = CrashingOs(n)
            patch.setattr(journal_module, "os", crashing)
            patch.setattr(atomic, "os", crashing)
            try:
                for group in groups:
                    tasks = [Task(batch) for batch in group]
                    try:
                        first.writer.commit(tasks)
                    finally:
                        answers = [task.answer for task in tasks]
                        acknowledged += [a for a in answers if a.done() and not a.exception()]
                    first.writer._save_if_due()
            except Crash:
                ended, n_crashes = False, n_crashes + 1
        release(first)
        second = open_model(path, snapshot_every=8)
        n_known = second.writer.sequence
        assert n_known >= len(acknowledged)
        known = learn_offline(batches[:n_known], are_numbers=are_numbers)
        assert to_bytes(second.writer.model) == to_bytes(known)
        commit(second.writer, batches)  # all of them again, with the same keys
        assert to_bytes(second.writer.model) == whole
        assert second.writer.sequence == len(batches)
        release(second)
        if ended:
            break
    assert n_crashes > 20


def test_wherever_it_ends_while_it_recovers_or_closes_nothing_is_lost(tmp_path, monkeypatch):
    batches = draw_batches(4, most_rows=4)
    whole, n_crashes = to_bytes(learn_offline(batches)), 0
    (tmp_path / "0").mkdir()
    first = open_model(tmp_path / "0" / "model.dmt", new=True)
    commit(first.writer, batches[:3])
    release(first)  # with all of it in the journal only
    for n in range(1, 1000):
        path = shutil.copytree(tmp_path / "0", tmp_path / str(n)) / "model.dmt"
        with monkeypatch.context() as patch:
            crashing = CrashingOs(n)
            patch.setattr(journal_module, "os", crashing)
            patch.setattr(atomic, "os", crashing)
            recovered = None
            try:
                recovered = open_model(path)
                commit(recovered.writer, batches[3:])
                recovered.writer.close()
            except Crash:
                n_crashes += 1
        ended = crashing.n_left > 0
        if recovered is not None:
            release(recovered)
        again = open_model(path)
        assert again.writer.sequence in (3, 4)
        commit(again.writer, batches)
        assert to_bytes(again.writer.model) == whole
        release(again)
        if ended:
            break
    assert n_crashes > 15


def test_a_refused_batch_changes_and_notes_nothing(tmp_path):
    good = draw_batches(3)
    bad = [
        LearnBatch([{"a": 1.0}, {"a": "text"}], ["up", "down"]),
        LearnBatch([{"new": 1.0}], [None]),
        LearnBatch([{"a": 1.0}], ["up", "down"]),
        LearnBatch([{"a": 1.0}], ["up"], [-1.0]),
        LearnBatch([{"a": 1.0, "another": 2.0}], ["third"], [float("nan")]),
    ]
    recovered = open_model(tmp_path / "model.dmt", new=True)
    for batch in good:
        commit(recovered.writer, [batch])
    before, size = to_bytes(recovered.writer.model), recovered.writer.journal.size
    for batch in bad[:4]:
        [task] = commit(recovered.writer, [batch])
        assert task.answer.exception().status == 422
    assert (to_bytes(recovered.writer.model), recovered.writer.journal.size) == (before, size)
    tasks = commit(recovered.writer, [bad[0], good[0], bad[1]])  # one group
    assert [task.answer.exception() is None for task in tasks] == [False, True, False]
    release(recovered)


def test_the_model_may_have_no_more_features_and_labels_than_allowed(tmp_path):
    limits = Limits(max_features=2, max_labels=2)
    recovered = open_model(tmp_path / "model.dmt", new=True, limits=limits)
    for rows, labels, words in [
        ([{"a": 1, "b": 2}], ["x"], None),
        ([{"c": 1}], ["x"], "3 features, more than the 2"),
        ([{"a": 1}, {"a": 2}], ["y", "z"], "3 labels, more than the 2"),
        ([{"a": 1}], ["y"], None),
    ]:
        [task] = commit(recovered.writer, [LearnBatch(rows, labels)])
        error = task.answer.exception()
        assert error is None if words is None else re.search(words, error.words)
    recovered.writer.save()
    release(recovered)
    with pytest.raises(ValueError, match=r"the model has 2 features: start .* --max-features 2"):
        open_model(tmp_path / "model.dmt", limits=Limits(max_features=1))


def test_a_key_is_learnt_once_and_stands_for_one_batch(tmp_path):
    path = tmp_path / "model.dmt"
    one, two = draw_batches(2)
    recovered = open_model(path, new=True)
    tasks = commit(recovered.writer, [one, one, two])
    assert [task.answer.result()[0].sequence for task in tasks] == [1, 1, 2]
    assert [task.answer.result()[1] for task in tasks] == [True, False, True]
    [task] = commit(recovered.writer, [LearnBatch(two.rows, two.labels, two.weights, one.key)])
    assert "was used for another batch" in task.answer.exception().words
    for save in (True, False):  # the keys survive in the journal, and in the file
        release(recovered)
        recovered = open_model(path)
        [task] = commit(recovered.writer, [one])
        assert task.answer.result() == (tasks[0].answer.result()[0], False)
        if save:
            recovered.writer.save()
    assert to_bytes(recovered.writer.model) == to_bytes(learn_offline([one, two]))
    release(recovered)


def test_only_the_last_keys_are_remembered():
    keys = LearntKeys()
    for i in range(REMEMBERED + 5):
        keys.add(str(i), Learnt(i, 1, "digest"))
    assert len(keys) == REMEMBERED
    assert LearntKeys.from_json(keys.to_json()).to_json() == keys.to_json()
    assert keys.to_json()[0][0] == "5"


def test_a_full_disk_stops_learning_and_keeps_what_was_acknowledged(tmp_path, monkeypatch):
    batches = draw_batches(4)
    recovered = open_model(tmp_path / "model.dmt", new=True)
    writer = recovered.writer
    writer.start()
    writer.submit(batches[0]).result(10)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writer.journal, "append", fail)
        answer = writer.submit(batches[1])
        with pytest.raises(Refusal, match="503: the batch could not be made durable"):
            answer.result(10)
        writer._thread.join(10)
    assert "learning has stopped (No space left on device)" in writer.failure
    with pytest.raises(Refusal, match="503: learning has stopped"):
        writer.submit(batches[2])
    before = (tmp_path / "model.dmt").read_bytes()
    writer.close()
    assert (tmp_path / "model.dmt").read_bytes() == before
    os.close(recovered.lock)
    again = open_model(tmp_path / "model.dmt")
    assert to_bytes(again.writer.model) == to_bytes(learn_offline(batches[:1]))
    release(again)


def test_a_model_that_cannot_be_saved_goes_on_with_its_journal(tmp_path, monkeypatch):
    batches = draw_batches(6)
    recovered = open_model(tmp_path / "model.dmt", new=True, snapshot_every=1)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("driftree.learn.storage.container.replace_file", fail)
        for batch in batches:
            commit(recovered.writer, [batch])
    assert recovered.writer.failed_snapshots > 1
    release(recovered)
    again = open_model(tmp_path / "model.dmt")
    assert again.n_batches == len(batches)
    assert to_bytes(again.writer.model) == to_bytes(learn_offline(batches))
    release(again)


def test_requests_wait_for_one_writer_and_too_many_are_turned_away(tmp_path):
    batches = draw_batches(12)
    recovered = open_model(tmp_path / "model.dmt", new=True, limits=Limits(max_waiting=10))
    writer = recovered.writer
    answers = [writer.submit(batch) for batch in batches[:10]]
    assert answers[3].cancel()  # the client has gone
    with pytest.raises(Refusal) as refusal:
        writer.submit(batches[10])
    assert (refusal.value.status, refusal.value.headers) == (503, {"Retry-After": "1"})
    writer.start()
    writer.close()  # which learns what waits
    done = [batch for i, batch in enumerate(batches[:10]) if i != 3]
    assert [a.result()[0].sequence for a in answers if not a.cancelled()] == list(range(1, 10))
    with pytest.raises(Refusal, match="shutting down"):
        writer.submit(batches[11])
    os.close(recovered.lock)
    assert to_bytes(load(tmp_path / "model.dmt")) == to_bytes(learn_offline(done))


def test_many_threads_share_the_writer(tmp_path):
    recovered = open_model(tmp_path / "model.dmt", new=True, snapshot_every=100)
    writer, learnt = recovered.writer, {}
    writer.start()

    def send(seed):
        for batch in draw_batches(20, seed=seed):
            receipt, _ = writer.submit(batch).result(30)
            learnt[receipt.sequence] = batch

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    os.close(recovered.lock)
    assert sorted(learnt) == list(range(1, 81))
    in_order = [learnt[sequence] for sequence in sorted(learnt)]
    assert to_bytes(load(tmp_path / "model.dmt")) == to_bytes(learn_offline(in_order))


# ---------------------------------------------------------------------- files that do not fit
def test_two_servers_never_share_a_model_but_readers_may_look(tmp_path):
    path = tmp_path / "model.dmt"
    recovered = open_model(path, new=True)
    (tmp_path / "link.dmt").symlink_to(path)
    for name in ("model.dmt", "link.dmt"):
        with pytest.raises(BlockingIOError, match=r"in use by .*: stop that server"):
            open_model(tmp_path / name)
    reader = open_model(path, read_only=True).writer
    with pytest.raises(Refusal, match="403: this server is read-only"):
        reader.submit(draw_batches(1)[0])
    release(recovered)


def test_a_journal_is_never_taken_for_that_of_another_file(tmp_path):
    path = tmp_path / "model.dmt"
    recovered = open_model(path, new=True)
    old = path.read_bytes()
    commit(recovered.writer, draw_batches(2))
    recovered.writer.save()
    commit(recovered.writer, draw_batches(1, seed=2))
    release(recovered)
    good = path.read_bytes()
    for content, words in [
        (old, "contains batches up to 0, but .* begins with 3: the file is older"),
        (
            to_bytes(DynamicModelTreeClassifier()),
            "holds batches 3 to 3, but .* is not the model that it",
        ),
        (None, "holds batches 3 to 3, but .* does not exist"),
    ]:
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(JournalError, match=words):
            open_model(path, new=content is None)
    path.write_bytes(good)
    again = open_model(path)
    assert (again.writer.sequence, again.n_batches) == (3, 1)
    release(again)


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        ([{7: 1.0}], ["up"], "has a feature named 7, but names are text"),
        ([{"a": 1.0}], [("up", 1)], r"has a label \('up', 1\), which JSON cannot express"),
    ],
)
def test_what_json_cannot_name_is_not_served(tmp_path, rows, labels, words):
    model = DynamicModelTreeClassifier()
    model.learn_one(rows[0], labels[0])
    model.save(tmp_path / "model.dmt")
    with pytest.raises(ValueError, match=words):
        open_model(tmp_path / "model.dmt")


def test_a_bug_while_refusing_stops_learning(tmp_path, monkeypatch):
    recovered = open_model(tmp_path / "model.dmt", new=True)
    commit(recovered.writer, draw_batches(1))
    learn = DynamicModelTreeClassifier.learn_many

    def change_then_fail(model, *arguments):
        learn(model, *arguments)
        raise ValueError("too late")

    monkeypatch.setattr(DynamicModelTreeClassifier, "learn_many", change_then_fail)
    task = Task(draw_batches(1, seed=2)[0])
    with pytest.raises(RuntimeError, match="changed while it refused"):
        recovered.writer.commit([task])
    assert task.answer.exception().status == 503
    release(recovered)


def test_a_writer_of_nothing_to_write_closes(tmp_path):
    Writer(DynamicModelTreeClassifier(), tmp_path / "model.dmt", None).close()
    assert list(tmp_path.iterdir()) == []
