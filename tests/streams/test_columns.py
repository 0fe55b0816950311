"""The reader of the data sets: the rules of `open_stream`, and malformed rows are named."""

import gzip

import numpy as np
import pytest

from driftree.streams import open_stream
from driftree.streams.columns import read_columns

TABLE = "size,colour,day,target\n1,red,2,a\n3,b,?,b\n\n5,red,NA,b\n7,,1,b\n"


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "tiny.csv.gz"
        path.write_bytes(gzip.compress(text.encode("utf-8", errors="surrogateescape")))
        return path, {name: column.restored() for name, column in read_columns(path).items()}

    return read


@pytest.mark.parametrize("change", [str, lambda text: f"\ufeff{text}\n\n".replace(",day", ", day")])
def test_cells_mean_what_they_mean_in_open_stream(read, change):
    path, columns = read(change(TABLE))
    np.testing.assert_array_equal(columns["day"], [2, np.nan, np.nan, 1])
    assert columns["colour"].tolist() == ["red", "b", "red", None]
    ((X, y),) = open_stream(path)
    for name, cells in {**X, "target": y}.items():
        np.testing.assert_array_equal(columns[name], cells)


def test_one_text_makes_a_column_of_text(read):
    _, columns = read(
        TABLE.replace("red,2", "red,1_0").replace("3,b", "inf,b").replace("7,,", "x,,")
    )
    assert columns["day"].tolist() == ["1_0", None, None, "1"]
    assert columns["size"].tolist() == ["1", "inf", "5", "x"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("3,b,?,b", "3,b,?", r"line 3: expected 4 cells, got 3 \(mend the file, or"),
        ("3,b,?,b", '3,"b\n\n",?,b,6', "lines 3 to 5: expected 4 cells, got 5"),
        ("NA,b", "-inf,b", "line 5, column 'day': expected a finite number, got '-inf'"),
        ("NA,b", "NA,?", r"line 5, column 'target': the label is missing, got '\?'"),
        ("7,,", "7,\udcff,", "line 6, column 'colour': '.udcff' is not UTF-8"),
        ("7,,", '7,"x"y,', "line 6: ',' expected after '\"'"),
        ("7,,", '7,"x\n,', "lines 6 to 7: unexpected end of data"),
        ("colour", "col\udcff", "header of .* is not UTF-8"),
        ("size", '"size"s', "header of .* is malformed: ',' expected"),
    ],
)
def test_malformed_rows_are_named(read, old, new, words):
    assert old in TABLE
    with pytest.raises(ValueError, match=words) as caught:
        read(TABLE.replace(old, new))
    assert "tiny.csv.gz" in str(caught.value)
