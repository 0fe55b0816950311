"""Rows as River takes them, whatever holds them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from driftree.streams.rows import Rows, join

CELLS = [[1.0, "a"], [np.nan, None], [2.0, "c"]]
DICTS = [{"x0": 1.0, "x1": "a"}, {}, {"x0": 2.0, "x1": "c"}]
NAMES = ["x0", "x1"]


@pytest.mark.parametrize(
    ("X", "dicts"),
    [
        (np.array(CELLS, dtype=object), DICTS),
        (pd.DataFrame(CELLS, columns=NAMES), DICTS),
        (pd.DataFrame(CELLS, columns=NAMES).convert_dtypes(), DICTS),
        ({"x0": np.array([1.0, pd.NA, 2.0], dtype=object), "x1": ["a", None, "c"]}, DICTS),
        (pl.DataFrame(CELLS, schema=NAMES, orient="row"), DICTS),
        (pd.DataFrame([[1, 2], [3, 4], [5, 6]]), [{0: 1, 1: 2}, {0: 3, 1: 4}, {0: 5, 1: 6}]),
        (np.array([[1.0], [np.nan], [2.0]]), [{"x0": 1.0}, {}, {"x0": 2.0}]),
        (np.array([["a"], ["nan"], [""]]), [{"x0": "a"}, {"x0": "nan"}, {"x0": ""}]),
        (np.array([[True], [False], [True]]), [{"x0": True}, {"x0": False}, {"x0": True}]),
    ],
)
def test_what_is_missing_is_absent(X, dicts):
    rows = Rows(X, [0, 1, 0])
    assert rows.dicts == dicts
    assert rows[1:].dicts == dicts[1:]
    assert rows[1:].names == rows.names


def test_masked_cells_and_labels_are_missing():
    X = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    rows = Rows(X, np.ma.masked_array(["a", "b"], mask=[False, True]))
    assert rows.dicts == [{"x0": 1}, {"x0": 3, "x1": 4}]
    assert rows.labels == ["a", None]


def test_numbers_stay_numbers_beside_text():
    numbers, text = np.array([1.0, 2.0]), np.array(["x", "y"])
    X, _ = join([({"a": numbers}, numbers), ({"a": text}, numbers)])
    assert X["a"].tolist() == [1.0, 2.0, "x", "y"]
