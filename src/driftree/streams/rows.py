"""Rows of a stream, whatever holds them: an array, a data frame, or a dict of columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from driftree.streams.batching import count_rows, name_features, take

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray


class Rows:
    """Features and labels of some rows.

    Parameters
    ----------
    X : array, data frame, or dict of columns
        Features. A dict of columns maps names to arrays of equal length; NaN and None are missing.
    y : array or series
        Labels.

    Attributes
    ----------
    X, y : as given
        The rows; `y` as a one-dimensional array.

    Examples
    --------
    >>> rows = Rows({"age": np.array([31.0, np.nan]), "car": np.array(["van", "bus"])}, [1, 0])
    >>> rows.names, rows.dicts
    (['age', 'car'], [{'age': 31.0, 'car': 'van'}, {'car': 'bus'}])
    >>> rows[1:].labels
    [0]
    """

    def __init__(self, X: Any, y: Any) -> None:
        self.X = X
        self.y: NDArray[Any] = np.asarray(y)
        n_rows = count_rows(X)
        if self.y.shape != (n_rows,):
            raise ValueError(
                f"X has {n_rows} rows, but y has the shape {self.y.shape}: give one label per row"
            )

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: slice) -> Rows:
        start, stop, _ = place.indices(len(self))
        rows = Rows(*take((self.X, self.y), start, stop))
        for name in ("names", "labels", "dicts"):  # what is known of these need not be found again
            if name in self.__dict__:
                known = self.__dict__[name]
                rows.__dict__[name] = known if name == "names" else known[place]
        return rows

    @cached_property
    def names(self) -> list[Hashable]:
        """Names of the features; x0, x1, ... for the columns of an array."""
        return name_features(self.X)

    @cached_property
    def labels(self) -> list[Any]:
        """The labels as Python's own values."""
        return list(self.y.tolist())

    @cached_property
    def dicts(self) -> list[dict[Hashable, Any]]:
        """The rows as River takes them; what is missing is absent."""
        names = self.names
        if isinstance(self.X, np.ndarray):
            rows = [dict(zip(names, row, strict=True)) for row in self.X.tolist()]
            may_miss = self.X.dtype.kind == "O" or (
                self.X.dtype.kind in "fc" and bool(np.isnan(self.X).any())
            )
        else:
            columns = [_to_list(self._column(name)) for name in names]
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            may_miss = True
        if not may_miss:
            return rows
        return [
            {name: cell for name, cell in row.items() if cell is not None and cell == cell}  # noqa: PLR0124
            for row in rows
        ]

    def _column(self, name: Any) -> Any:
        if isinstance(self.X, Mapping):
            return self.X[name]
        return nw.from_native(self.X, eager_only=True).get_column(name)  # [1] would be a row


def _to_list(column: Any) -> list[Any]:
    return list(column.to_list() if hasattr(column, "to_list") else np.asarray(column).tolist())
