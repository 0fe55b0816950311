"""The journal: whole records come back whatever was cut off, and damage is never passed over."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree.serve.journal import (
    HEADER,
    MAGIC,
    Entry,
    Journal,
    JournalError,
    read_journal,
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
    [path] = folder.glob("*.log")
    return path, entries, ends


@given(groups=TEXTS, data=st.data())
def test_cut_at_any_byte_it_gives_exactly_the_whole_groups(tmp_path_factory, groups, data):
    folder = tmp_path_factory.mktemp("journal")
    path, entries, ends = write(folder, groups)
    assert read_journal(folder) == (ID, entries, 0)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)), label="cut")
    path.write_bytes(whole[:cut])
    n_bytes, n_entries = max(((0, 0), *(end for end in ends if end[0] <= cut)))
    assert read_journal(folder) == (ID if n_bytes else None, entries[:n_entries], cut - n_bytes)


@given(groups=TEXTS, data=st.data())
def test_a_damaged_byte_is_found_unless_it_is_in_the_last_group(tmp_path_factory, groups, data):
    folder = tmp_path_factory.mktemp("journal")
    path, entries, ends = write(folder, groups)
    damaged = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(damaged) - 1), label="place")
    damaged[place] ^= data.draw(st.integers(1, 255), label="change")
    path.write_bytes(damaged)
    start, n_entries = max(((0, 0), *(end for end in ends if end[0] <= place)))
    if start == ends[-2][0]:  # it cannot be told from one that was being written
        assert read_journal(folder) == (ID, entries[:n_entries], len(damaged) - start)
    else:
        with pytest.raises(JournalError, match=f"{path.name}: the record at byte {start} is"):
            read_journal(folder)


def test_segments_follow_each_other_and_only_the_last_may_be_torn(tmp_path):
    first, entries, _ = write(tmp_path, [["a"], ["b", "c"]])
    kept = first.read_bytes()
    second, more, _ = write(tmp_path, [["d"]], first=4)
    first.write_bytes(kept)
    assert read_journal(tmp_path) == (ID, entries + more, 0)
    second.write_bytes(second.read_bytes()[:-1])
    assert read_journal(tmp_path).entries == entries
    first.write_bytes(kept[:-1])
    with pytest.raises(JournalError, match=r"byte \d+ is damaged, and another file follows"):
        read_journal(tmp_path)


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
