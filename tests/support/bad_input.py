"""What a careless or hostile user may send: one entry for each line of the table in docs/input.md.

The table says what every door does with it, this file what it is. `SAME` is input that means the
same, where there is some.
"""

import datetime
import decimal
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

N_ROWS, NAMES = 6, ["x0", "x1", "x2"]
X = np.random.default_rng(1).normal(size=(N_ROWS, 3))
COLUMNS = {name: X[:, j].tolist() for j, name in enumerate(NAMES)}
ROW = dict(zip(NAMES, X[2].tolist(), strict=True))
LABELS = ["no", "yes", "no", "no", "yes", "yes"]
HUGE = np.full((N_ROWS, 3), np.longdouble("1e4000"))


@dataclass(frozen=True)
class Sent:
    """What goes to the doors: a batch as array and as columns, a row; labels and weights."""

    X: Any = field(default_factory=X.copy)
    columns: Any = field(default_factory=COLUMNS.copy)
    row: Any = field(default_factory=ROW.copy)
    y: Any = field(default_factory=LABELS.copy)
    label: Any = "no"
    weights: Any = None
    weight: Any = 1.0
    classes: Any = None


@dataclass(frozen=True)
class Case:
    """A line's input, words of its errors, input that means the same, and who is taught what."""

    sent: list[Sent]
    words: str = ""
    same: Sent | None = None
    models: tuple[str, ...] = ("measured", "paper", "FIMT-DD")
    taught: str = "numbers"
    is_warned: bool = False


def with_cell(value, place=("x1", 2)):
    """A batch and a row with one other cell."""
    name, i = place
    cells = X.astype(object)
    cells[i, NAMES.index(name)] = value
    column = [*COLUMNS[name][:i], value, *COLUMNS[name][i + 1 :]]
    return Sent(X=cells, columns=COLUMNS | {name: column}, row=ROW | {name: value})


def in_dicts(sent):
    """The same batch, with a list of dicts instead of columns."""
    rows = zip(*sent.columns.values(), strict=True)
    return replace(sent, columns=[dict(zip(sent.columns, row, strict=True)) for row in rows])


def with_colors(*colors):
    """A batch and a row with a column of categories."""
    numbers = np.resize(X, (len(colors), 3))
    cells = np.column_stack([numbers.astype(object), np.array([*colors, None], dtype=object)[:-1]])
    columns = dict(zip(NAMES, numbers.T, strict=True)) | {"x3": list(colors)}
    y = np.resize(np.array(LABELS), len(colors)).tolist()
    return Sent(X=cells, columns=columns, row=ROW | {"x3": colors[2]}, y=y)


def as_batch(X, columns=None):
    return Sent(X=X, columns=X if columns is None else columns, row=X)


def with_label(label, y=None):
    labels = [*LABELS[:2], label, *LABELS[3:]]
    return Sent(y=labels if y is None else y, label=label)


def with_weight(weight, weights=None):
    changed = [1.0, 1.0, weight, 1.0, 1.0, 1.0]
    return Sent(weights=changed if weights is None else weights, weight=weight)


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, dtype=np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[:] = array
    return found


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


MISSING = with_cell(None)
MASK = np.arange(X.size).reshape(X.shape) == 7  # the cell of row 2 and column x1
FRAME = pd.DataFrame(COLUMNS)
WITHOUT_ROW_2 = [0, 1, 3, 4, 5]
MANY = 10_000
WIDE = np.ones((2, MANY))
WIDE_COLUMNS = {f"x{j}": [1.0, 2.0] for j in range(MANY)}
WIDE_ROW = dict.fromkeys(WIDE_COLUMNS, 1.0)

MOMENTS = [
    datetime.datetime(2024, 2, 29, 13, 30),
    pd.Timestamp("2024-02-29 13:30"),
    pd.Timestamp("2024-02-29 13:30", tz="Asia/Tokyo"),
    np.datetime64("2024-02-29T13:30"),
    np.datetime64("2024-02-29T13:30", "ns"),
]

CELLS = {
    "`NaN`, `None`, `pandas.NA`, `NaT`": Case(
        [with_cell(gap) for gap in (math.nan, np.float32("nan"), pd.NA, pd.NaT)], same=MISSING
    ),
    "a masked cell": Case(
        [
            Sent(
                X=np.ma.masked_array(X, MASK),
                columns=COLUMNS | {"x1": np.ma.masked_array(X[:, 1], MASK[:, 1])},
                row=ROW | {"x1": None},
            )
        ],
        same=MISSING,
    ),
    "infinity": Case(
        [with_cell(math.inf), with_cell(-math.inf), with_cell(np.float32("inf"))],
        words="column 'x1', row [02]; use NaN or None for a missing value, or clip it",
    ),
    "a number beyond `float64`": Case(
        [
            with_cell(10**400),
            with_cell(-(10**400)),
            in_dicts(with_cell(10**400)),
            Sent(X=HUGE, columns=COLUMNS | {"x0": HUGE[:, 0]}, row=ROW | {"x0": HUGE[0, 0]}),
        ],
        words="column 'x[01]', row [02]; use NaN or None for a missing value, or clip it",
    ),
    "1e308, 1e-308, 5e-324": Case(
        [with_cell(value) for value in (1.7e308, -1.7e308, 1e-308, 5e-324, -0.0)]
    ),
    "a whole number beyond 2**53": Case([with_cell(2**53 + 1)], same=with_cell(2.0**53)),
    "`Decimal`, `Fraction`, NumPy scalars": Case(
        [with_cell(decimal.Decimal("2.5")), with_cell(np.float32(2.5)), with_cell(np.array(2.5))],
        same=with_cell(2.5),
    ),
    "a boolean in a numeric column": Case([with_cell(True)], same=with_cell(1.0)),
    "text in a numeric column": Case(
        [
            with_cell("old"),
            with_cell("2.5"),
            with_cell(b"2.5"),
            with_cell(""),
            with_cell("?" * 9999),
        ],
        words=r"column 'x1' is numeric, but row [02] holds .{2,100}: convert it to a number",
    ),
    "dates and times": Case(
        [with_colors(*[when] * N_ROWS) for when in MOMENTS],
        same=with_colors(*[datetime.datetime(2024, 2, 29, 13, 30)] * N_ROWS),
        taught="times",
    ),
    "a date in a numeric column, a duration": Case(
        [
            with_cell(datetime.date(2020, 1, 1)),
            with_cell(datetime.timedelta(1)),
            in_dicts(with_cell(datetime.timedelta(1))),
            with_cell(np.timedelta64(1, "ns")),  # NumPy would convert it
            in_dicts(with_cell(np.timedelta64(1, "D"))),
            with_cell(pd.Timestamp("2020")),
            with_cell(pd.Period("2020")),
            replace(
                with_cell(np.datetime64("2020-01-01")),
                X=np.full((N_ROWS, 3), np.datetime64("2020-01-01")),
            ),
        ],
        words="('x1', row [02]|datetime64).*(convert it|convert them) .*dates to days",
    ),
    "a complex number": Case(
        [
            replace(with_cell(1j), X=X + 1j),
            replace(with_cell(np.complex128(1j)), X=X + 1j),
            replace(in_dicts(with_cell(np.complex64(1j))), X=X + 1j),
        ],
        words="column 'x1', row 0|2.*convert|real and the imag",
    ),
    "a list, a dict or another object in a cell": Case(
        [with_cell(cell) for cell in ([1, 2], {"a": 1}, {1}, object(), np.arange(2), print)],
        words="column 'x1', row [02].* got .* of type .*: convert it .* or remove the column",
    ),
    "a constant feature": Case(
        [Sent(X=np.ones_like(X), columns=dict.fromkeys(NAMES, [1.0] * N_ROWS))]
    ),
    "a category that was never seen": Case(
        [with_colors("red", "green", "mauve", "red", None, "red")],
        same=with_colors("red", "green", "grey", "red", None, "red"),
        taught="colors",
    ),
    "more than 32 categories": Case(
        [with_colors(*(f"color {i}" for i in range(40)))], taught="colors"
    ),
    "a number in a categorical column": Case(
        [with_colors("red", 3, 3, 2.5, None, True)],
        same=with_colors("red", np.float32(3), 3.0, 2.5, None, 1),
        taught="colors",
    ),
    "a list in a categorical column": Case(
        [with_colors("red", "blue", ["red"], "red", "blue", "red")],
        words="column 'x3', row [02] holds .*not hashable: use text",
        taught="colors",
    ),
}

BATCHES = {
    "no rows": Case(
        [Sent(X[:0], columns, y=[]) for columns in ({name: [] for name in NAMES}, {}, [])],
        words="0 sample",
    ),
    "one row": Case([Sent(X=X[:1], columns={n: [1.0] for n in NAMES}, y=["no"])]),
    "no columns": Case(
        [
            Sent(X=X[:, :0], columns=pd.DataFrame(index=range(N_ROWS)), row={}),
            Sent(X=X[:, :0], columns=[{}] * N_ROWS, row={}),
        ],
        words="0 feature",
    ),
    "a million rows": Case(
        [
            Sent(
                X=np.tile(X, (MANY, 1)),
                columns={name: np.tile(X[:, j], MANY) for j, name in enumerate(NAMES)},
                y=np.tile(np.array(LABELS), MANY),
            )
        ]
    ),
    "no known feature at all": Case(
        [Sent(columns={"y0": [1.0] * N_ROWS}, row={"y0": 1.0})], is_warned=True
    ),
    "a feature too few": Case(
        [Sent(X[:, :2], {"x0": COLUMNS["x0"]}, {"x0": 1.0})], words="X has 2 features.*expecting 3"
    ),
    "a feature too many": Case(
        [Sent(np.hstack([X, X[:, :1]]), COLUMNS | {"new": COLUMNS["x0"]}, ROW | {"new": 1.0})],
        words="X has 4 features.*expecting 3 .*learn_many",
    ),
    "10,000 features, Dynamic Model Tree": Case(
        [Sent(X=WIDE, columns=WIDE_COLUMNS, row=WIDE_ROW, y=["no", "yes"])],
        words=r"X has 10000|would take \d\.\d GiB .* at most 2.0 GiB .*select, hash or project",
        models=("measured", "paper"),
    ),
    "10,000 features from the start, measured setting": Case(
        [Sent(X=WIDE, columns=WIDE_COLUMNS, row=WIDE_ROW, y=["no", "yes"])],
        models=("measured",),
        taught="wide",
    ),
    "10,000 features, FIMT-DD": Case(
        [Sent(X=WIDE, columns=WIDE_COLUMNS, row=WIDE_ROW, y=["no", "yes"])],
        models=("FIMT-DD",),
        taught="wide",
    ),
    "columns in another order": Case(
        [Sent(FRAME[["x2", "x0", "x1"]], FRAME[["x2", "x0", "x1"]], dict(reversed(ROW.items())))],
        words="names should match",
        same=Sent(FRAME, FRAME),
        taught="frame",
    ),
    "a column name twice": Case(
        [as_batch(pd.DataFrame(X, columns=["x0", "x1", "x0"]))],
        words="column 'x0' appears twice: rename or drop one",
    ),
    "`NaN` as a column name": Case(
        [Sent(columns=COLUMNS | {math.nan: COLUMNS["x0"]}, row=ROW | {math.nan: 1.0})],
        words="a column is named nan: give it a name, or remove it",
    ),
    "rows or columns of several lengths": Case(
        [Sent(X=[*X.tolist()[:5], [1.0]], columns=COLUMNS | {"x1": [1.0]})],
        words="row 5 has 1 cells, but row 0 has 3|same number of rows, but have .*'x1': 1.*None",
    ),
    "another memory layout or number type": Case(
        [
            Sent(X=array, columns={name: array[:, j] for j, name in enumerate(NAMES)})
            for array in (
                np.asfortranarray(X),
                np.repeat(X, 2, axis=0)[::2],
                np.repeat(X, 2, axis=1)[:, ::2],
                X.astype(">f8"),
                X.astype(np.longdouble),
                unaligned(X),
                frozen(X),
                X.astype(object),
            )
        ]
        + [Sent(X=memoryview(X)), Sent(X=X.tolist()), Sent(X=FRAME.to_numpy())],
        same=Sent(),
    ),
    "`float32`, `float16`": Case(
        [
            Sent(X=(X * 4).round().astype(dtype), columns=dict(zip(NAMES, columns, strict=True)))
            for dtype in (np.float32, np.float16, np.int8, np.int64)
            for columns in [(X.T * 4).round().astype(dtype)]
        ],
        same=Sent((X * 4).round(), dict(zip(NAMES, (X.T * 4).round(), strict=True))),
    ),
    "1-d or 3-d": Case(
        [as_batch(X[:, 0]), as_batch(X[:, :, None])],
        words="1D array|dim 3|'ndarray': arrays go to partial_fit|a row must be a dict",
    ),
    "a sparse matrix": Case(
        [as_batch(scipy.sparse.csr_array(X)), as_batch(scipy.sparse.csr_matrix(X))],
        words="Sparse data.*toarray|a data frame .* is needed|a row must be a dict",
        models=("paper", "FIMT-DD"),
    ),
    "a sparse matrix, measured setting": Case(
        [as_batch(scipy.sparse.csr_array(X)), as_batch(scipy.sparse.csr_matrix(X))],
        words="a data frame .* is needed|a row must be a dict",
        models=("measured",),
    ),
    "`None`, text, a number, a set, a generator": Case(
        [as_batch(given) for given in (None, "loans.csv", b"x", 3, {1, 2}, iter(X.tolist()))],
        words="X must be an array, a data frame or a dict|a data frame .* is needed|must be a dict",
    ),
    "a list of dicts": Case(
        [as_batch([dict(zip(NAMES, row, strict=True)) for row in X.tolist()])],
        words="a row must be a dict",
        same=Sent(),
    ),
    "a lazy frame, a structured array": Case(
        [
            as_batch(pl.DataFrame(COLUMNS).lazy()),
            as_batch(np.rec.fromarrays(X.T, names="x0,x1,x2")),
        ],
        words="lazy frame with collect|convert them to numbers|frame .* is needed|must be a dict",
    ),
    "an array or a row where columns belong": Case(
        [Sent(columns=X), Sent(columns=ROW)], words="arrays go to partial_fit|goes to learn_one"
    ),
    "columns where a row belongs": Case(
        [Sent(row=COLUMNS)], words="column 'x0', row 0.* got .* of type 'list'"
    ),
    "nothing learnt yet": Case([Sent()], words="not fitted", taught="nothing"),
}

Y = {
    "fewer or more labels than rows": Case(
        [Sent(y=LABELS[:5]), Sent(y=LABELS * 2), Sent(y=[])],
        words="X has 6 rows, but y has .* labels: give one per row",
    ),
    "a label that is missing or infinite": Case(
        [with_label(label) for label in (None, math.nan, math.inf, pd.NA, np.float64("nan"))]
        + [
            with_label(pd.NaT),
            with_label(None, np.ma.masked_array([0, 1] * 3, [0, 0, 1, 0, 0, 0])),
        ],
        words="the label of row [02] is .*omit the row, or give such rows a label",
    ),
    "labels of several types": Case(
        [
            with_label(3),
            with_label(("a", 1)),
            with_label(True, [1, "no", "x", 2.0, b"b", 0]),
        ]
    ),
    "labels 1, 1.0 and True": Case(
        [with_label(1, [1, 1.0, True, 1, 0, False]), with_label(True, [True, 1, 1, 1.0, 0, 0.0])],
        same=with_label(1, [1, 1, 1, 1, 0, 0]),
    ),
    "a label that cannot be a key": Case(
        [with_label(label) for label in ([1], {"a": 1}, {1})],
        words=r"y, row [02] holds .* of type .* not hashable: use text, numbers or tuples",
    ),
    "real numbers as labels": Case(
        [with_label(0.25, [0.1, 0.2, 0.25, 0.3, 0.4, 0.5])], words="Unknown label type: continuous"
    ),
    "bytes as labels": Case([with_label(b"yes", np.array(LABELS, dtype="S3"))], words="bytes"),
    "no `y`": Case(
        [Sent(y=None, label=None)], words="target y is None|y must be a sequence|label of row 0"
    ),
    "text, a set, a dict, a generator as `y`": Case(
        [
            Sent(y=y)
            for y in ("noyesn", {1, 2, 3, 4, 5, 6}, dict.fromkeys(range(6)), iter(LABELS), 3)
        ],
        words="y must be a sequence of labels, got .* of type .*: give a list",
    ),
    "`y` of several columns": Case(
        [Sent(y=np.array([LABELS, LABELS]).T)], words="1d array|y, row 0 holds .* not hashable"
    ),
    "pandas' `boolean` and `Int64`": Case(
        [Sent(y=pd.Series([0, 1, 0, 0, 1, 1], dtype=dtype)) for dtype in ("boolean", "Int64")],
        same=Sent(y=[0, 1, 0, 0, 1, 1]),
        taught="nothing",
    ),
    "one class only": Case([Sent(y=["no"] * N_ROWS)], taught="nothing"),
    "10,000 classes": Case([with_label("new")], taught="classes"),
    "10,000 classes and 10,000 features": Case(
        [Sent(X=WIDE, columns=WIDE_COLUMNS, row=WIDE_ROW, y=["no", "yes"])],
        words=r"X has 10000|10,00\d classes would take \d+\.\d GiB",
        taught="classes",
    ),
    "text or a number as `classes`": Case(
        [Sent(classes="noyes"), Sent(classes=2)], words="classes must be a sequence of labels"
    ),
    "a class that is missing": Case(
        [Sent(classes=["no", None])], words="Input classes contains NaN, infinity or None"
    ),
}

WEIGHTS = {
    "a weight below 0, `NaN` or infinite": Case(
        [with_weight(weight) for weight in (-1.0, math.nan, math.inf, -math.inf, None)]
        + [with_weight(math.nan, np.ma.masked_array([1.0] * 6, [0, 0, 1, 0, 0, 0]))],
        words="row [02] has the weight .*; 0 leaves a row out",
    ),
    "a weight beyond 1e15": Case(
        [with_weight(1e16), with_weight(1e308)], words="row [02] has the weight .*: divide all"
    ),
    "a weight of 0": Case(
        [replace(with_cell("?", ("x1", 2)), y=with_label([]).y, weights=[1, 1, 0, 1, 1, 1])],
        same=Sent(
            X=X[WITHOUT_ROW_2],
            columns={name: [cells[i] for i in WITHOUT_ROW_2] for name, cells in COLUMNS.items()},
            y=[LABELS[i] for i in WITHOUT_ROW_2],
        ),
    ),
    "all weights 0": Case([Sent(weights=[0] * N_ROWS, weight=0)]),
    "weights from 5e-324 to 1e15": Case(
        [with_weight(weight, [weight] * N_ROWS) for weight in (5e-324, 1e-300, 1e-12, 1e12, 1e15)]
    ),
    "one weight for all rows": Case([Sent(weights=2)], same=Sent(weights=[2.0] * N_ROWS)),
    "too few or too many weights": Case(
        [with_weight([1, 1], [1] * 5), with_weight([], np.ones((N_ROWS, 1)))],
        words="sample_weight must hold one number per row, [16] in all, got the shape",
    ),
    "text, dates, complex numbers as weights": Case(
        [
            with_weight("2", ["2"] * N_ROWS),
            with_weight(1j, [1j] * N_ROWS),
            with_weight(np.datetime64("2020"), np.full(N_ROWS, np.datetime64("2020"))),
            with_weight({}, {0: 1.0}),
        ],
        words="sample_weight must hold numbers, got .*: give one number per row",
    ),
}

CASES = CELLS | BATCHES | Y | WEIGHTS
