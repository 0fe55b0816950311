"""CSV that is larger than it looks: lines, rows and blocks that would not fit into memory."""

import gzip
import io
import tracemalloc

import numpy as np
import pytest

from driftree.streams import csv_file, formats, open_stream

CAP = 30_000  # more than is read at once
PART = 4 * CAP


@pytest.fixture
def small_caps(monkeypatch):
    monkeypatch.setattr(formats, "MAX_LINE", CAP)
    monkeypatch.setattr(formats, "MAX_PART", PART)


def read(source, **options):
    return [len(y) for _, y in open_stream(source, batch=1, **options)]


# Of each: what is endless, and the line that an error names.
START = "a,b,target\n1,2,x\n\n3,4,y\n"
ENDLESS = {
    "a header": ("", "name,", 1),
    "a header in one name": ("", "n", 1),
    "a header in a quote": ("", 'a","\nb', 1),
    "a line": (START, "5,", 5),
    "a line of one cell": (START, "5", 5),
    "a quote": (START, 'x\n",", ', 5),
    "a quote on the same line": (START, '"x","', 5),
}


@pytest.mark.parametrize(("before", "again", "line"), ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("kind", ["text", "bytes", "gzip"])
@pytest.mark.parametrize("on_bad_row", ["stop", "skip"])
def test_what_never_ends_is_an_error_that_names_the_line(
    small_caps, tmp_path, before, again, line, kind, on_bad_row
):
    quote = '"' if '"' in again and before else ""
    text = (before or '"' * ('"' in again)) + quote + again * 400_000
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(text.encode()) if kind == "gzip" else text.encode())
    source = io.StringIO(text, newline="") if kind == "text" else path
    found = []
    with pytest.raises(
        ValueError, match=rf"line {line} of .* more than 30,000 characters.*is it CSV"
    ):
        found.extend(y[0] for _, y in open_stream(source, batch=1, on_bad_row=on_bad_row))
    assert found == (["x", "y"] if before else [])


def test_a_line_may_be_as_long_as_the_cap(small_caps):
    for n_more in (0, 1):
        row = "1," + "x" * (CAP - 3 + n_more) + "\n"
        source = io.StringIO("a,target\n1,y\n" + row + "2,z\n")  # in text, to the character
        if n_more:
            with pytest.raises(ValueError, match="line 3 of"):
                read(source)
        else:
            assert read(source) == [1, 1, 1]


def test_blank_lines_take_no_room(small_caps):
    text = START + "\n" * (2 * PART) + "5,6,x\n" + "\r\n" * (2 * PART) + "7,8,y\n"
    assert read(io.StringIO(text, newline="")) == [1] * 4


def test_long_rows_come_in_shorter_blocks_and_are_the_same_rows(small_caps, monkeypatch):
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 10**6, size=(300, 1000))
    header = ",".join(f"x{j}" for j in range(1000)) + "\n"
    text = header + "".join(",".join(map(str, row)) + "\n" for row in cells)
    sizes = []
    to_block = csv_file.CsvFile._to_block
    monkeypatch.setattr(
        csv_file.CsvFile,
        "_to_block",
        lambda self, rows, columns: sizes.append(len(rows)) or to_block(self, rows, columns),
    )
    batches = list(open_stream(io.StringIO(text), batch=300))
    X, y = batches[0]
    np.testing.assert_array_equal(np.column_stack([*X.values(), y]), cells)
    assert max(sizes) * 1000 < PART


def test_a_bomb_takes_no_more_memory_than_a_few_lines_of_the_cap(tmp_path):
    """At the real caps: 60 KB of gzip that are one line of 64 MB."""
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,target\n1,x\n" + b"1," * 2**25))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"line 3 of .*bomb.csv.gz has more than 4,194,304"):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * formats.MAX_LINE


def test_a_wide_header_is_read_in_time_that_grows_with_it(monkeypatch):
    """The names are looked up, not compared with each other."""
    n_compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal n_compared
            n_compared += 1
            return str.__eq__(self, other)

    stream = open_stream(io.StringIO("a,b,target\n1,2,x\n"))
    header = [Name(f"x{j}") for j in range(2000)]
    stream._source._check_header(header)
    assert n_compared < 10 * len(header)
