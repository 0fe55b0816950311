"""The reader of the data sets: as `open_stream` reads, but the whole."""

import gzip

import numpy as np
import pytest

from driftree.streams import BadRowError, open_stream
from driftree.streams.data_files import read_columns

TABLE = "size,colour,day,target\n1,red,2,a\n3,b,?,b\n\n5,red,NA,b\n7,,1,b\n"


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "tiny.csv.gz"
        path.write_bytes(gzip.compress(text.encode("utf-8", errors="surrogateescape"), mtime=0))
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


def test_a_malformed_row_is_named(read):
    with pytest.raises(BadRowError, match=r"tiny\.csv\.gz, line 5, column 'day': .*'-inf'"):
        read(TABLE.replace("NA,b", "-inf,b"))
