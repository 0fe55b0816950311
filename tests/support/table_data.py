"""The same rows in every form that `open_stream` takes."""

import csv
import gzip
import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from driftree.streams import open_stream

N_ROWS = 2345
rng = np.random.default_rng(1)
DATA = {
    "age": np.where(rng.random(N_ROWS) < 0.1, np.nan, rng.integers(18, 90, N_ROWS)),
    "income": rng.normal(size=N_ROWS).round(4),
    "car": rng.choice(["van", "bus, old", "öre"], N_ROWS).astype(object),
}
LABELS = rng.integers(0, 3, N_ROWS)
NUMBERS = np.column_stack([DATA["age"], DATA["income"]])


def write_csv(path, delimiter=",", columns=DATA, labels=LABELS):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow([*columns, "target"])
        writer.writerows(zip(*columns.values(), labels.tolist(), strict=True))
    return path


def write_text(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def write_parquet(path):
    table = pa.table({**DATA, "target": LABELS})
    parquet.write_table(table, path, row_group_size=700)
    return path


def as_bytes(path):
    return io.BytesIO(write_csv(path).read_bytes())


def rows_of_dicts():
    for *cells, label in zip(*DATA.values(), LABELS.tolist(), strict=True):
        yield dict(zip(DATA, cells, strict=True)), label


def batches_of_frames(batch_rows):
    for start in range(0, N_ROWS, batch_rows):
        rows = slice(start, start + batch_rows)
        yield pd.DataFrame(DATA)[rows], LABELS[rows]


SOURCES = {
    "csv": write_csv,
    "csv as text": lambda path: str(write_csv(path)),
    "semicolons": lambda path: write_csv(path, ";"),
    "tabs": lambda path: write_csv(path, "\t"),
    "bom": lambda path: write_text(path, b"\xef\xbb\xbf" + write_csv(path).read_bytes()),
    "line feeds": lambda path: write_text(path, write_csv(path).read_bytes().replace(b"\r", b"")),
    "gzip": lambda path: write_text(path, gzip.compress(write_csv(path).read_bytes(), mtime=0)),
    "binary file object": as_bytes,
    "gzipped file object": lambda path: io.BytesIO(
        gzip.compress(as_bytes(path).getvalue(), mtime=0)
    ),
    "text file object": lambda path: io.StringIO(as_bytes(path).getvalue().decode()),
    "parquet": write_parquet,
    "pandas": lambda _: pd.DataFrame({**DATA, "target": LABELS}),
    "polars": lambda _: pl.DataFrame({**DATA, "target": LABELS}),
    "pyarrow": lambda _: pa.table({**DATA, "target": LABELS}),
    "frame and list": lambda _: (pd.DataFrame(DATA), LABELS.tolist()),
    "frame and series": lambda _: (pl.DataFrame(DATA), pl.Series(LABELS)),
    "rows": lambda _: rows_of_dicts(),
    "batches of frames": lambda _: batches_of_frames(300),
    "a stream": lambda path: open_stream(write_csv(path), batch=77),
}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table, "parquet": pa.Table}


def to_dict(X):
    if isinstance(X, pa.Table):
        X = X.to_pandas()
    columns = X if isinstance(X, dict) else {name: X[name].to_numpy() for name in X.columns}
    return {name: np.asarray(cells, dtype=object) for name, cells in columns.items()}


def collect(batches):
    features, labels = zip(*batches, strict=True)
    columns = [to_dict(X) for X in features]
    X = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    return X, np.concatenate(labels)


def assert_same_rows(batches, start=0, stop=N_ROWS):
    X, y = collect(batches)
    assert list(X) == list(DATA)
    for name in ("age", "income"):
        np.testing.assert_array_equal(X[name].astype(float), DATA[name][start:stop])
    assert X["car"].tolist() == DATA["car"][start:stop].tolist()
    np.testing.assert_array_equal(y, LABELS[start:stop])
    assert y.dtype == np.int64


def read_text(text, **options):
    return collect(open_stream(io.StringIO(text), **options))
