"""Vocabulary: the names of features, levels and labels, in the order of their codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn.memory import text_bytes
from driftree.learn.tables import array_names
from driftree.learn.validation import as_objects, distinct_texts, printable

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Levels = Sequence[Mapping[Hashable, int] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The names in one state of a model.

    It is immutable: new names create a new vocabulary. So a model replaces its vocabulary
    atomically, together with the state of its kernels (`RowFace.commit`), and readers never see
    half of a change.

    Attributes
    ----------
    names : dict
        Feature names to column indices.
    levels : list
        Per feature the codes of its levels, or None for a numeric one.
    labels : dict
        Labels to codes.
    feature_names, label_list, classes : list, list, ndarray
        Names by index and labels by code.
    display_names : list of str
        The names as text, each different from all others.
    array_begin : int
        Index from which the names are x0, x1, ...; -1 if the last ones are not.
    is_numeric : bool
        Whether no feature has levels.
    n_text : int
        Bytes that names (twice), levels and labels take as text in a model file.
    """

    names: dict[Hashable, int]
    levels: list[dict[Hashable, int] | None]
    labels: dict[Hashable, int]
    feature_names: list[Hashable]
    display_names: list[str]
    array_begin: int
    is_numeric: bool
    label_list: list[Any]
    classes: NDArray[np.generic]
    n_text: int

    @classmethod
    def of(
        cls, names: Mapping[Hashable, int], levels: Levels, labels: Mapping[Hashable, int]
    ) -> Vocabulary:
        """Create a vocabulary from copies.

        Examples
        --------
        >>> words = Vocabulary.of({"age": 0, "car": 1}, [None, {"van": 0}], {"yes": 0, "no": 1})
        >>> words.feature_names, words.label_list, words.is_numeric
        (['age', 'car'], ['yes', 'no'], False)
        """
        own = dict(names)
        shown = [printable(str(name)) for name in own]
        label_list = list(labels)
        return cls(
            names=own,
            levels=[None if codes is None else dict(codes) for codes in levels],
            labels=dict(labels),
            feature_names=list(own),
            display_names=distinct_texts(shown, map(repr, own)),
            array_begin=_array_begin(own),
            is_numeric=all(codes is None for codes in levels),
            label_list=label_list,
            classes=label_array(label_list),
            n_text=2 * text_bytes(names)
            + text_bytes(labels)
            + sum(text_bytes(codes) for codes in levels if codes is not None),
        )

    def with_features(
        self, names: Sequence[Hashable], levels: list[dict[Hashable, int] | None], n_text: int
    ) -> Vocabulary:
        """Return one with more names, and the levels of all features; `n_text` is the increase."""
        if not names:
            is_numeric = self.is_numeric and all(codes is None for codes in levels)
            n_text += self.n_text
            return replace(self, levels=levels, is_numeric=is_numeric, n_text=n_text)
        more = {name: len(self.names) + i for i, name in enumerate(names)}
        return Vocabulary.of(self.names | more, levels, self.labels)

    def with_labels(self, labels: Sequence[Hashable]) -> Vocabulary:
        """Return one with more labels."""
        if not labels:
            return self
        more = {label: len(self.labels) + i for i, label in enumerate(labels)}
        label_list = [*self.label_list, *labels]
        return replace(
            self,
            labels=self.labels | more,
            label_list=label_list,
            classes=label_array(label_list),
            n_text=self.n_text + text_bytes(labels),
        )


def _array_begin(names: Mapping[Hashable, int]) -> int:
    begin = names.get("x0", -1)
    return begin if list(names)[begin:] == array_names(len(names) - begin) else -1


def label_array(labels: list[Any]) -> NDArray[Any]:
    r"""Return labels as an array that holds them unchanged.

    Examples
    --------
    >>> label_array(["a", "b"]), label_array([1, "b"])
    (array(['a', 'b'], dtype='<U1'), array([1, 'b'], dtype=object))
    >>> label_array(["a", b"\x80"])
    array(['a', b'\x80'], dtype=object)
    """
    is_plain = all(isinstance(label, (str, bytes, bool, int, float)) for label in labels)
    if is_plain and len({isinstance(label, bytes) for label in labels}) < 2:  # bytes are not text
        array = np.asarray(labels)
        if array.tolist() == labels:
            return array
    return as_objects(labels)
