"""Scaling by what came before, and by nothing else."""

import numpy as np

from driftree.streams.generators import normalise_online


def test_each_batch_is_scaled_by_the_rows_before_it():
    generator = np.random.default_rng(1)
    X, y = generator.normal(size=(50, 3)), np.arange(50)
    X[:, 2] = 7
    X[30:, 2] = 9
    parts = [(X[i : i + 10], y[i : i + 10]) for i in range(0, 50, 10)]
    batches = list(normalise_online([parts[0], (X[:0], y[:0]), *parts[1:]]))
    assert [len(labels) for _, labels in batches] == [10, 0, 10, 10, 10, 10]
    for i, (scaled, labels) in zip(range(0, 50, 10), [batches[0], *batches[2:]], strict=True):
        past = X[: max(i, 10)]
        spread = np.ptp(past, axis=0)
        expected = (X[i : i + 10] - past.min(axis=0)) / np.where(spread == 0, 1, spread)
        np.testing.assert_allclose(scaled, expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(labels, y[i : i + 10])


def test_later_rows_have_no_influence():
    X, y = np.random.default_rng(2).normal(size=(30, 2)), np.zeros(30)
    cut = [(X[i : i + 10], y[i : i + 10]) for i in (0, 10)]
    first, second = normalise_online(cut)
    whole = list(normalise_online([*cut, (X[20:] * 100, y[20:])]))
    np.testing.assert_array_equal(first[0], whole[0][0])
    np.testing.assert_array_equal(second[0], whole[1][0])
    assert np.abs(whole[2][0]).max() > 1  # not clipped
