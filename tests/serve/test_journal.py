"""The journal: whole records come back whatever was cut off, and damage is never passed over."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree.serve.journal import (
    HEADER,
    MAGIC,
    Entry,
    Journal,
    JournalError,
    read_count,
    read_journal,
    segments,
    to_frame,
)

ID = "0123"
TEXTS = st.lists(
    st.lists(st.recursive(st.integers() | st.text(max_size=9), st.lists, max_leaves=3), min_size=1),
    min_size=1,
    max_size=5,
)


def write(folder, groups, first=1):
    """Write groups of JSON; return the file, its entries and where each frame ends."""
    journal = Journal(folder, ID)
    journal.restart(first)
    entries, ends = [], [(journal.size, 0)]
    for group in groups:
        texts = [json.dumps(item).encode() for item in group]
        journal.append(first + len(entries), texts)
        entries += [Entry(first + len(entries) + i, text) for i, text in enumerate(texts)]
        ends.append((journal.size, len(entries)))
    journal.close()
    [path] = segments(folder)
    return path, entries, ends


def read(folder):
    found = read_journal(folder)
    return found.journal_id, found.entries, found.n_cut


@given(groups=TEXTS, data=st.data())
def test_cut_at_any_byte_it_gives_exactly_the_whole_groups(tmp_path_factory, groups, data):
    folder = tmp_path_factory.mktemp("journal")
    path, entries, ends = write(folder, groups)
    assert read(folder) == (ID, entries, 0)
    assert read_count(folder, ID) == len(entries)
    assert read_count(folder, "another") is None
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)), label="cut")
    path.write_bytes(whole[:cut])
    if cut < ends[0][0]:  # a segment has no name before it has begun
        with pytest.raises(JournalError, match=r"the record at byte 0 is (empty|damaged)"):
            read(folder)
        return
    n_bytes, n_entries = max(end for end in ends if end[0] <= cut)
    assert read(folder) == (ID, entries[:n_entries], cut - n_bytes)


@given(groups=TEXTS, data=st.data())
def test_a_damaged_byte_is_found(tmp_path_factory, groups, data):
    folder = tmp_path_factory.mktemp("journal")
    path, entries, ends = write(folder, groups)
    damaged = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(damaged) - 1), label="place")
    damaged[place] ^= data.draw(st.integers(1, 255), label="change")
    path.write_bytes(damaged)
    start, n_entries = max(((0, 0), *(end for end in ends if end[0] <= place)))
    try:
        assert read(folder) == (ID, entries[:n_entries], len(damaged) - start)
    except JournalError as error:
        assert f"{path.name}: the record at byte {start} is" in str(error)  # noqa: PT017
    else:  # in the last group it may look as if it was being written; but it was counted
        assert start == ends[-2][0]
        assert read_journal(folder).last < read_count(folder, ID)


def test_segments_follow_each_other_and_only_the_last_may_be_torn(tmp_path):
    first, entries, _ = write(tmp_path, [["a"], ["b", "c"]])
    kept = first.read_bytes()
    second, more, _ = write(tmp_path, [["d"]], first=4)
    first.write_bytes(kept)
    assert read(tmp_path) == (ID, entries + more, 0)
    second.write_bytes(second.read_bytes()[:-1])
    assert read(tmp_path)[1] == entries
    first.write_bytes(kept[:-1])
    with pytest.raises(JournalError, match=r"byte \d+ is damaged, and another file follows"):
        read(tmp_path)


def test_a_new_segment_is_there_before_the_old_ones_go(tmp_path, monkeypatch):
    write(tmp_path, [["a"]])
    journal, calls = Journal(tmp_path, ID), []
    for name in ("replace", "fsync", "unlink"):
        call = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, name=name, call=call, **b: (calls.append(name), call(*a, **b))
        )
    journal.restart(2)
    journal.close()
    assert calls == ["unlink", "fsync", "fsync", "replace", "fsync", "unlink"]
    assert read(tmp_path) == (ID, [], 0)


def test_files_of_others_are_neither_read_nor_touched(tmp_path):
    names = ["server.log", "1.log", "0" * 19 + "x.log", "0" * 21 + ".log", "0" * 20 + ".log.gz"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "folder.log").mkdir()
    _, entries, _ = write(tmp_path, [["a"], ["b"]])
    assert read(tmp_path) == (ID, entries, 0)
    write(tmp_path, [["c"]], first=3)
    assert all((tmp_path / name).read_text() == "mine" for name in names)
    assert (tmp_path / "folder.log").is_dir()


HEADS = [
    b"",
    b"{",
    b"[]",
    b"1",
    b"{}",
    b'{"format": 1}',
    b'{"format": 1, "journal": 7}',
    b"[" * 9999,
]


@pytest.mark.parametrize("text", HEADS)
def test_a_head_that_says_nothing_is_damage(tmp_path, text):
    (tmp_path / ("0" * 20 + ".log")).write_bytes(to_frame(0, [text]))
    with pytest.raises(JournalError, match="does not say which journal it belongs to"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"format": 1', b'"format": 2', "has format 2, and this driftree reads 1: upgrade"),
        (ID.encode(), b"9999", "belongs to another journal"),
    ],
)
def test_a_segment_of_another_kind_is_refused(tmp_path, old, new, words):
    first, _, _ = write(tmp_path, [["a"]])
    kept = first.read_bytes()
    second, _, _ = write(tmp_path, [["b"]], first=2)
    first.write_bytes(kept)
    text = second.read_bytes()[HEADER.size :].partition(MAGIC)[0].replace(old, new)
    second.write_bytes(to_frame(2, [text]))
    with pytest.raises(JournalError, match=words):
        read_journal(tmp_path)


def test_a_missing_segment_is_noticed(tmp_path):
    first, _, _ = write(tmp_path, [["a"]])
    kept = first.read_bytes()
    write(tmp_path, [["c"]], first=3)
    first.write_bytes(kept)
    with pytest.raises(JournalError, match="begins with record 3, but the file before it ends"):
        read_journal(tmp_path)
