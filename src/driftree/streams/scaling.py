"""Scaling without looking ahead."""

from collections.abc import Iterable

import numpy as np

from driftree.streams.concepts import Features, Labels
from driftree.streams.synthetic import Batches


def normalise_online(batches: Iterable[tuple[Features, Labels]]) -> Batches:
    """Scale each batch by the range of the rows before it, as a learner in the field has to.

    The paper scales each feature to [0, 1] over the whole stream, which looks ahead. This is the
    honest alternative: scikit-learn's `MinMaxScaler` transforms a batch first and learns its range
    afterwards. The first batch, which only trains in test-then-train, is scaled by its own range.
    Values beyond the range so far are not clipped but fall outside of [0, 1], and a feature that
    has been constant so far is only shifted: a new extreme remains visible.

    Parameters
    ----------
    batches : iterable of (X, y)
        Batches; rows in stream order.

    Yields
    ------
    tuple of (X, y)
        The same batches with scaled features.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.zeros(2, dtype=np.int64)
    >>> batches = [(np.array([[0.0], [2.0]]), y), (np.array([[4.0], [1.0]]), y)]
    >>> [X.ravel().tolist() for X, _ in normalise_online(batches)]
    [[0.0, 1.0], [2.0, 0.5]]
    """
    from sklearn.preprocessing import MinMaxScaler

    scaler = MinMaxScaler()
    for X, y in batches:
        if len(X) == 0:
            yield X, y
            continue
        if not hasattr(scaler, "n_samples_seen_"):
            yield scaler.fit(X).transform(X), y
            continue
        scaled: Features = np.asarray(scaler.transform(X))
        scaler.partial_fit(X)
        yield scaled, y
