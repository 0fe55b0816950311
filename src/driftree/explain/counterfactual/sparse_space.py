"""Sparse space: what may become of a row that holds a few of very many features.

Its places are those of the encoder's features, then what the row holds besides, then its texts: a
text is a feature for each of its levels, which can only change together. Numbers with a column move
as ever. Anything else that is held may go (0), and a feature that the tree may be split by may come
with the mean of the values that rows held, which of words is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.sparse import sparse_engine, sparse_scales, sparse_texts, weights_of
from driftree.learn.sparse import check_row
from driftree.learn.units import LIMIT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from driftree.explain.counterfactual.solver import Doubles
    from driftree.learn.encoding import Encoder


class SparseSpace:
    """The places of a row and their names, in the stead of the encoder.

    Parameters
    ----------
    encoder : Encoder
        Of a model that has sparse features.
    x : dict
        The row.

    Attributes
    ----------
    values : array of shape (places,)
        The row: 0 where it does not hold a feature, the number of its level where it is a text.
    levels : list of dict or None
        Per place the levels of a text and their numbers.
    derived : set of int
        Places of levels, which follow from the place of their text.
    """

    def __init__(self, encoder: Encoder, x: dict[Hashable, Any]) -> None:
        self.encoder, self.engine, self.x = encoder, sparse_engine(encoder), x
        held = check_row(x, 0, None)
        self.n_known = len(encoder.feature_names)
        ids = encoder.row_face.sparse_ids(list(held), learning=False, centred=False) or []
        places = dict(zip(held, ids, strict=True))
        words = [name for name, i in places.items() if i >= 0 and name not in encoder.names]
        self.feature_names: list[Hashable] = [*encoder.feature_names, *words]
        own = np.array([places[name] for name in words], dtype=np.int32)
        self.display_names = [*encoder.display_names, *sparse_texts(encoder, own)]
        self._find_slots(own)
        absent = [*np.nan_to_num(self.engine.absent).tolist(), *[0.0] * len(words)]
        self._values = [
            float(held.get(name, other))
            for name, other in zip(self.feature_names, absent, strict=True)
        ]
        self.levels: list[dict[Hashable, int] | None] = [None] * len(self.feature_names)
        self._levels_at: dict[int, list[int]] = {}  # place of a text to those of its levels
        self._add_texts()
        self.names = {name: j for j, name in enumerate(self.feature_names)}
        self.derived = {j for each in self._levels_at.values() for j in each if j >= 0}
        self.values = np.array(self._values)

    def _find_slots(self, own: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Say which id each place has; what has no column is a sparse input."""
        features = self.engine.sparse_feature
        known = np.zeros(self.n_known, dtype=np.int32)
        known[features[features >= 0]] = np.flatnonzero(features >= 0)
        has_column = np.append(self.engine.value_column >= 0, np.zeros(len(own), dtype=bool))
        self._ids = np.append(known, own)
        self._slots = np.flatnonzero(~has_column)
        self._shift, self._factor = sparse_scales(self.engine, self._ids[self._slots])

    def _add_texts(self) -> None:
        """Make a place of each text in the row, with its own level and those in the encoder."""
        known = {name: j for j, name in enumerate(self.feature_names)}
        for name, text in self.x.items():
            if not isinstance(text, str):
                continue
            start = f"{name} == "
            texts = [one for one in known if isinstance(one, str) and one.startswith(start)]
            levels = list(dict.fromkeys([text, *(one[len(start) :] for one in texts)]))
            self._levels_at[len(self._values)] = [known.get(start + level, -1) for level in levels]
            self._values.append(0.0)
            self.feature_names.append(name)
            self.display_names.append(str(name))
            self.levels.append({level: code for code, level in enumerate(levels)})

    def is_elsewhere(self, name: Any) -> bool:
        """Tell whether a name is known, but neither held by the row nor to come: it stays 0."""
        if name in self.names:
            return False
        return self.encoder.row_face.sparse_ids([name], learning=False, centred=False) != [-1]

    # ------------------------------------------------------------------ what may be
    def choices(self, j: int) -> set[float]:
        """Return the values that a place may have, unless it is a number with a column."""
        levels = self.levels[j]
        if levels is not None:
            return set(map(float, levels.values()))
        if j in self.derived:
            return {float(self.values[j])}
        name = self.feature_names[j]
        if name not in self.x and " == " in str(name):  # a level of a text that is not there
            return {0.0}
        if self.values[j] != 0.0:
            return {0.0, float(self.values[j])}
        usual = float(f"{self.engine.sparse_mean[self._ids[j]]:.3g}")
        return {0.0, 1.0 if self.engine.scale_is_indicator[j] else usual}

    def allowed_levels(self, low: list[float], high: list[float]) -> dict[int, set[float]]:
        """Return per text the numbers of the levels that lie within some limits of all places."""
        found = {}
        for place, each in self._levels_at.items():
            fits = [
                all(low[j] <= (i == code) <= high[j] for i, j in enumerate(each) if j >= 0)
                for code in range(len(each))
            ]
            found[place] = {float(code) for code, may in enumerate(fits) if may}
        return found

    # ------------------------------------------------------------------ what the models see
    def known(self, values: Doubles) -> Doubles:
        """Return the values of the encoder's features in rows, [rows, features]."""
        return self._settled(values)[:, : self.n_known]

    def inputs(self, values: Doubles) -> Doubles:
        """Return the sparse inputs of rows, [rows, slots]."""
        own = self._settled(values)[:, self._slots]
        scaled = np.clip((own - self._shift) * self._factor, -LIMIT, LIMIT)
        return np.where(own == 0.0, 0.0, scaled)

    def weights(self, leaf: int) -> Doubles:
        """Return a leaf's weights of the sparse inputs, [outputs, slots]."""
        return weights_of(self.engine, leaf, self._ids[self._slots]).T

    def _settled(self, values: Doubles) -> Doubles:
        """Return rows in which levels follow their texts."""
        rows = values.copy()
        for place, each in self._levels_at.items():
            for code, j in enumerate(each):
                if j >= 0:
                    rows[:, j] = rows[:, place] == code
        return rows

    # ------------------------------------------------------------------ in the user's words
    def level(self, j: int, code: float) -> Hashable:
        """Return the level that a number stands for."""
        levels = self.levels[j]
        return code if levels is None else list(levels)[int(code)]

    def digits(self, j: int, value: float) -> int:
        """Return how many digits of a number matter."""
        return self.encoder.digits(j, value)

    def row(self, values: Doubles, changed: Iterable[int]) -> dict[Hashable, Any]:
        """Return the row as it came, with what is different in it."""
        row = dict(self.x)
        for j in changed:
            name, value = self.feature_names[j], float(values[j])
            is_whole = isinstance(row.get(name, 0), int) and value == int(value)
            number = int(value) if is_whole else value
            row[name] = number if self.levels[j] is None else self.level(j, value)
        return row
