"""The records of the data sets: known by name, as in the paper, and true of the real files."""

import numpy as np
import pytest

from driftree.paper import published
from driftree.streams.catalogue import DATA_SETS, find_data_set
from driftree.streams.datasets import list_data_sets, load_data_set


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Covertyp", "did you mean covertype?"),
        ("kdd", "did you mean kddcup99_10pct?"),
        ("insects-abrupt", "did you mean insects_abrupt?"),
        ("mnist", "'mnist': choose from electricity, airlines, bank"),
    ],
)
def test_an_unknown_name(name, words):
    with pytest.raises(ValueError, match="there is no data set") as caught:
        find_data_set(name)
    assert words in str(caught.value)


def test_the_records_are_those_of_the_paper():
    titles = {name: record.title for name, record in DATA_SETS.items() if name in published.TITLES}
    assert list(titles.items()) == list(published.TITLES.items())
    assert DATA_SETS.keys() - titles.keys() == {"airlines_5of7_features"}
    for name in titles:
        for kind, count in DATA_SETS[name].counts._asdict().items():
            assert count == published.COUNTS[name, kind]
    for name, record in DATA_SETS.items():
        assert name == record.name
        assert all(0 <= i < record.counts.n_features for i in record.categorical)
        assert all(0 <= a <= b < record.counts.n_rows for a, b in record.drifts)
        names = getattr(record.origin, "feature_names", range(record.counts.n_features))
        assert len(names) == record.counts.n_features


REAL = ("electricity", "bank_marketing", "kddcup99_10pct", "covertype", "airlines_5of7_features")


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_files_load_as_pandas_would_load_them(name, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("DRIFTREE_CACHE", str(tmp_path))
    record = DATA_SETS[name]
    status = list_data_sets([record])[0]
    if status.found != "DRIFTREE_DATA":
        pytest.skip(f"needs {record.file_name} in DRIFTREE_DATA")
    frame = pandas.read_csv(status.path)
    if record.shuffle_seed is not None:
        order = np.random.default_rng(record.shuffle_seed).permutation(len(frame))
    else:
        order = np.arange(len(frame))
    labels = frame.pop("target").to_numpy()
    plain = load_data_set(record, preprocess="none")
    np.testing.assert_array_equal(plain.y, labels[order])
    assert list(plain.X) == list(frame.columns)
    for column, values in plain.X.items():
        np.testing.assert_array_equal(values, frame[column].to_numpy()[order])
    for column in frame.select_dtypes(exclude="number"):
        frame[column] = pandas.factorize(frame[column])[0]
    X = frame.to_numpy(dtype=np.float64)
    spread = np.ptp(X, axis=0)
    X = (X - X.min(axis=0)) / np.where(spread == 0, 1, spread)
    for _ in range(2):  # from the file, and then from the cache
        data = load_data_set(record)  # which also compares with Table I
        assert data.X.tobytes() == X[order].tobytes()
        np.testing.assert_array_equal(data.y, pandas.factorize(labels)[0][order])
