"""Keyed models: one model per customer, machine or region, and a parent of all of them."""

from __future__ import annotations

import json
from collections.abc import Hashable
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import numpy as np
from river.utils import dataframe

from driftree.explain.changes import count_changes
from driftree.learn.encoding import as_set
from driftree.learn.storage import manifest, models
from driftree.learn.storage.atomic import Closing
from driftree.learn.tables import Columns, read_frame
from driftree.learn.times import TIME_TYPES
from driftree.learn.validation import nearest_name, shown
from driftree.learn.weights import one_per_row
from driftree.scale.keys import (
    INTEGERS,
    KIND,
    KeyDrift,
    KeyRecord,
    Summary,
    Tally,
    as_parent,
    by_key,
    check_key,
    check_made,
    check_storable,
    difference,
    label_loss,
    read_targets,
    refusal,
    take_key,
    take_keys,
    to_answers,
)
from driftree.scale.model_store import FORMAT_VERSION, KeptModel, ModelStore
from driftree.stored import CLASSES

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from driftree.explain.explanation import Explanation
    from driftree.learn.events import Event
    from driftree.stored import StoredModel

MEMORY = 2**28
RECENT_CHANGE = 100  # rows of a key
ENOUGH_ROWS = 20  # of a key, for a meaningful loss


Row = tuple[dict[Hashable, Any], Any, float]
"""Features, target and weight."""


class LearntRow(NamedTuple):
    """A row that a key's own model has learnt."""

    answer: Any
    """What it predicted before; None if it was new."""
    has_changed: bool
    """Whether its tree changed."""


class KeyedModels(Closing):
    """A model per key: per customer, machine or region.

    The first row of a key creates its model. A *parent* learns the rows of all keys, and predicts
    for a key until the key's own model is better: until its loss on the recent rows of the key is
    one nat lower. The least recently used models are on disk, and are restored bit for bit.

    Parameters
    ----------
    make : callable
        Returns a new model of driftree's own, such as ``DynamicModelTreeClassifier``.
    key : hashable
        The column that holds the key; the models do not see it. In arrays it is a position. Keys
        are text, whole numbers or bytes.
    parent : bool, default=True
        Whether there is a parent. Without it, a key starts from nothing, and a row costs half.
    memory : int, default=2**28
        Bytes of models to keep in memory, as their `memory_usage` counts them.
    path : path or None, default=None
        A folder for the models on disk. If it holds models, they continue learning; only one
        process at a time may use it. None: a temporary folder, and nothing can be committed.

    Attributes
    ----------
    parent : DynamicModelTreeClassifier or another learner, or None
        The model of the rows of all keys.
    n_rows_seen_ : int
        Rows learnt.
    position : int
        Position in the stream at the last `commit`; 0 if there was none.

    See Also
    --------
    driftree.scale.ray.RayKeyedModels : The same on many cores and machines.

    Notes
    -----
    Every key learns its rows one by one. So batches of any size give the same models as single
    rows, and a batch loads each of its models once, unless rows hold what is new to the parent. A
    row is learnt by its key's model and by the parent, or by neither. The parent of regressors has
    ``follow_target=False``, since the rows before belong to other keys. Any number of threads may
    use it. Calls are serialised; to use more cores, spread the keys over processes. A full
    disk is an OSError of every later call, too, until the folder is opened again: what was learnt
    since the last commit is lost.

    After Ctrl-C each model has learnt a row in full or not at all, and all can be used. But of the
    interrupted batch, some keys' models may have learnt rows that the parent and the counts lack.
    To drop the batch, close the models and open the folder again: it is at the last commit.

    Examples
    --------
    >>> import random
    >>> from driftree import DynamicModelTreeClassifier
    >>> from driftree.scale import KeyedModels
    >>> draw = random.Random(1)
    >>> models = KeyedModels(DynamicModelTreeClassifier, key="machine")
    >>> for row in range(3000):
    ...     machine, heat = draw.choice("ABC"), draw.uniform(0, 100)
    ...     limit = 30 if machine == "C" else 60  # C is another kind
    ...     models.learn_one({"machine": machine, "heat": heat}, heat > limit)
    >>> [models.predict_one({"machine": machine, "heat": 45}) for machine in ("A", "C")]
    [False, True]
    >>> models.predict_one({"machine": "new", "heat": 90})  # by the parent
    True
    >>> print(models.record("C"))
    'C': 1,005 rows, loss 0.0206, usually 0.0722, tree changed at row 735
    >>> print(models.events("C")[0])
    Row ...
    """

    def __init__(
        self,
        make: Callable[[], StoredModel],
        key: Hashable,
        *,
        parent: bool = True,
        memory: int = MEMORY,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        first = check_made(make())
        if not memory >= 0:
            raise ValueError(f"memory must be a number of bytes, got {shown(memory)}")
        self.make = make
        self.key = key
        self.parent: Any = as_parent(first) if parent else None
        self._of_labels = hasattr(first, "predict_proba_one")
        self._categorical = as_set(first.categorical)
        self._lock = RLock()
        self.n_rows_seen_ = self.position = 0
        self._store = ModelStore(path, memory, of_labels=self._of_labels, has_parent=parent)
        try:
            self._resume(make())
        except BaseException:
            self._store.close()
            raise

    # ------------------------------------------------------------------ learning
    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Feature names to values, including the key.
        y : hashable
            The label, or the number.
        w : float, default=1.0
            Weight; 2 is a batch of the row twice.
        """
        key, rest = take_key(x, self.key)
        with self._lock:
            self._learn_row(key, rest, y, w)

    def learn_many(self, X: Any, y: Any, w: ArrayLike | None = None) -> None:
        """Learn the rows of a batch, in their order; each key's model is loaded once, or few times.

        Parameters
        ----------
        X : data frame, dict of columns, list of dicts, or array
            The rows, with the key. Names that a dict lacks are read as by `learn_one`.
        y : series or sequence
            Labels, or numbers.
        w : sequence of float, optional
            Weights.

        Raises
        ------
        TypeError, ValueError
            If a row lacks its key or its target, or its key is not one; then nothing is learnt. If
            a row is invalid for its model or for the parent, a ValueError; then all others are
            learnt. So is a row with a label that no file can hold, such as a date.
        """
        taken = take_keys(X, self.key)
        targets = read_targets(y, len(taken), of_labels=self._of_labels)
        errors = self._learn_taken(taken, targets, one_per_row(1.0 if w is None else w, len(taken)))
        if errors:
            raise refusal(errors, taken)

    def _learn_taken(
        self, taken: list[tuple[Any, Any]], targets: NDArray[Any], weights: NDArray[np.float64]
    ) -> dict[int, ValueError | TypeError]:
        """Learn rows whose keys were taken; return the errors of invalid ones."""
        rests = [rest for _, rest in taken]
        given = list(zip(rests, targets.tolist(), weights.tolist(), strict=True))
        errors: dict[int, ValueError | TypeError] = {}
        start = 0
        with self._lock:
            while start < len(given):
                end = self._first_unsure(given, start)
                self._learn_sure(taken, given, range(start, end), errors)
                if end < len(given):
                    self._try(errors, end, self._learn_row, taken[end][0], *given[end])
                start = end + 1
        return errors

    def _first_unsure(self, given: list[Row], start: int) -> int:
        """Return the first row that the parent might refuse."""
        if self.parent is None:
            return len(given)
        takes = self.parent._takes
        unsure = (i for i in range(start, len(given)) if not takes(*given[i][:2]))
        return next(unsure, len(given))

    def _learn_sure(
        self,
        taken: list[tuple[Any, Any]],
        given: list[Row],
        rows: range,
        errors: dict[int, ValueError | TypeError],
    ) -> None:
        """Learn rows that the parent does not refuse: each key's first, then all by the parent."""
        by_tally: list[tuple[Any, Tally, dict[int, LearntRow]]] = []
        try:
            for key, places in by_key(taken[rows.start : rows.stop]).items():
                entry, own = self._entry(key), {}
                for i in (rows.start + place for place in places):
                    learnt = self._try(errors, i, self._learn_own, *given[i], entry.model)
                    if learnt is not None:
                        own[i] = learnt
                if own:  # a key without a valid row is not created
                    by_tally.append((key, entry.tally, own))
                    self._store.keep(entry)
            costs = {i: self._learn_parent(*given[i]) for i in rows if i not in errors}
            for key, tally, own in by_tally:
                for i, learnt in own.items():
                    self._add(tally, learnt, given[i][1], costs[i])
                self._store.keep_tally(key, tally)
        except Exception:
            if by_tally:  # learnt by the models of keys, but perhaps not by the parent
                self._store.give_up()
            raise

    @staticmethod
    def _try(
        errors: dict[int, ValueError | TypeError], row: int, learn: Callable[..., Any], *given: Any
    ) -> Any:
        """Learn a row, or record the error."""
        try:
            return learn(*given)
        except (ValueError, TypeError) as error:
            errors[row] = error

    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn a batch, as `learn_many`; in an array, `key` is a position."""
        self.learn_many(X, y, sample_weight)
        return self

    def _learn_row(self, key: Hashable, x: dict[Hashable, Any], y: Any, w: float) -> None:
        """Let both models learn a row, or neither: each may refuse what the other takes."""
        entry = self._entry(key)
        if self.parent is None or self.parent._takes(x, y):
            learnt = self._learn_own(x, y, w, entry.model)
            cost = self._learn_parent(x, y, w)
        else:
            self._check(x, y)
            entry.model._check_one(x, y, w)
            cost = self._learn_parent(x, y, w)
            learnt = self._learn_own(x, y, w, entry.model)
        self._add(entry.tally, learnt, y, cost)
        self._store.keep(entry)

    def _learn_parent(self, x: dict[Hashable, Any], y: Any, w: float) -> float | None:
        """Let the parent learn a row; return its loss before."""
        if self.parent is None:
            return None
        answer = self._answer(self.parent, x)
        self.parent.learn_one(x, y, w)
        return self._cost(answer, y)

    def _learn_own(self, x: dict[Hashable, Any], y: Any, w: float, model: Any) -> LearntRow:
        """Let a key's own model learn a row."""
        self._check(x, y)
        is_new = model._tree is None
        answer = None if is_new and self.parent is not None else self._answer(model, x)
        n_changes = 0 if is_new else count_changes(model)
        model.learn_one(x, y, w)
        return LearntRow(answer, has_changed=count_changes(model) != n_changes)

    def _check(self, x: dict[Hashable, Any], y: Any) -> None:
        """Raise if a row holds what no model on disk could."""
        if self._of_labels:
            check_storable(y, "a label")
        if {*map(type, x)} != {str}:  # of the names, nearly always
            for name in x:
                check_storable(name, "the name of a feature")
        for name in self._categorical & x.keys():
            if not isinstance(x[name], TIME_TYPES):
                check_storable(x[name], f"a value of {name!r}")

    def _add(self, tally: Tally, learnt: LearntRow, y: Any, parent_cost: float | None) -> None:
        """Add a row that was learnt to the losses of its key."""
        if parent_cost is None:
            cost = self._cost(learnt.answer, y)
            tally.add(cost, cost, is_cold=False)
        else:
            cost = parent_cost if learnt.answer is None else self._cost(learnt.answer, y)
            tally.add(cost, parent_cost, is_cold=tally.is_cold(of_labels=self._of_labels))
        self.n_rows_seen_ += 1
        if learnt.has_changed:
            tally.changed_at = tally.n_rows

    def _answer(self, model: Any, x: dict[Hashable, Any]) -> Any:
        return model.predict_proba_one(x) if self._of_labels else model.predict_one(x)

    def _cost(self, answer: Any, y: Any) -> float:
        return label_loss(answer, y) if self._of_labels else abs(float(y) - float(answer))

    # ------------------------------------------------------------------ predicting
    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:
        """Return the prediction for one row: by its key's model, or by the parent."""
        key, rest = take_key(x, self.key)
        with self._lock:
            return self._predictor(key).predict_one(rest)

    def predict_proba_one(self, x: Mapping[Hashable, Any]) -> dict[Any, float]:
        """Return the probabilities of the labels known to the predicting model."""
        key, rest = take_key(x, self.key)
        with self._lock:
            return self._predictor(key).predict_proba_one(rest)  # type: ignore[no-any-return]

    def predict_many(self, X: Any) -> Any:
        """Return the predictions of a batch: a series of the frame's library, or an array."""
        answers = self.predict(X)
        frame = None if isinstance(X, np.ndarray) else read_frame(X)
        if frame is None or isinstance(frame, Columns):
            return answers
        return dataframe.to_native_series(answers.tolist(), name=None, like=frame)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of a batch as an array."""
        taken = take_keys(X, self.key)
        answers: list[Any] = [None] * len(taken)
        with self._lock:
            for key, places in by_key(taken).items():
                predictor = self._predictor(key)
                for i in places:
                    answers[i] = predictor.predict_one(taken[i][1])
        return to_answers(answers)

    def explain_one(self, x: Mapping[Hashable, Any]) -> Explanation:
        """Explain the prediction for one row, by its key's model or by the parent."""
        key, rest = take_key(x, self.key)
        with self._lock:
            return self._predictor(key).explain_one(rest)  # type: ignore[no-any-return]

    def _predictor(self, key: Hashable) -> Any:
        """Return the model that predicts for a key."""
        entry = self._store.get(key)
        if entry is None:
            return self.make() if self.parent is None else self.parent
        is_cold = self.parent is not None and entry.tally.is_cold(of_labels=self._of_labels)
        return self.parent if is_cold else entry.model

    # ------------------------------------------------------------------ by key
    def __len__(self) -> int:
        return len(list(iter(self)))

    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over all keys, those on disk by their first rows, then those in memory."""
        with self._lock:
            known = [key for (key,) in self._store.ask("SELECT key FROM keys ORDER BY id")]
            return iter(dict.fromkeys([*known, *self._store.entries]))

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return self._store.tally(check_key(key)) is not None

    def __getitem__(self, key: Hashable) -> Any:
        """Return a key's own model, for reading: what it learns directly may be lost."""
        with self._lock:
            entry = self._store.get(check_key(key)) or self._unknown(key)
            return entry.model

    def events(self, key: Hashable) -> list[Event]:
        """Return the changes of a key's tree, oldest first."""
        return list(self[key].events_)

    def drifts(self, key: Hashable) -> list[KeyDrift]:
        """Return the periods in which a key's loss was well above its usual one; the last 20."""
        with self._lock:
            return list(self._tally(key).drifts)

    def record(self, key: Hashable) -> KeyRecord:
        """Return the record of a key: rows, losses, which model predicts, whether it drifts."""
        with self._lock:
            return self._store.record(check_key(key), self._tally(key))

    def summary(self, most: int = 10) -> Summary:
        """Summarise all keys: which drift, which have changed, which are worst.

        Parameters
        ----------
        most : int, default=10
            Keys to list of each kind.

        Examples
        --------
        >>> from driftree import DynamicModelTreeRegressor
        >>> from driftree.scale import KeyedModels
        >>> models = KeyedModels(DynamicModelTreeRegressor, key="shop")
        >>> for day in range(40):
        ...     models.learn_one({"shop": "north", "day": day % 7}, day % 7)
        >>> models.summary().n_keys, models.summary().worst[0].key
        (1, 'north')
        """
        with self._lock:
            store = self._store
            store.write_figures()
            counts = "COUNT(*), TOTAL(n_rows), TOTAL(is_cold), TOTAL(is_drifting)"
            ((n_keys, *sums),) = store.ask(f"SELECT {counts} FROM keys")
            n_rows, n_cold, n_drifting = map(int, sums)
            return Summary(
                n_keys,
                n_rows,
                n_cold,
                n_drifting,
                len(store.entries),
                store.n_bytes,
                self._records("is_drifting ORDER BY excess DESC", most),
                self._records(f"unchanged <= {RECENT_CHANGE} ORDER BY unchanged", most),
                self._records(f"n_rows >= {ENOUGH_ROWS} ORDER BY loss DESC", most),
            )

    def _records(self, which: str, most: int) -> tuple[KeyRecord, ...]:
        query = f"SELECT key, tally FROM keys WHERE {which}, key LIMIT ?"
        found = self._store.ask(query, most)
        return tuple(self._store.record(key, Tally.from_text(text)) for key, text in found)

    # ------------------------------------------------------------------ on disk
    def commit(self, position: int | None = None) -> None:
        """Write all models to `path`; after a crash, all keys are restored to this state.

        Parameters
        ----------
        position : int, optional
            Rows of the stream that are processed; by default those learnt.
        """
        with self._lock:
            if self._store.is_temporary:
                raise ValueError("commit needs a folder: create the models with path=...")
            done = self.n_rows_seen_ if position is None else int(position)
            if position not in (None, done) or done not in INTEGERS or done < 0:
                raise ValueError(f"position must be a number of rows, got {shown(position)}")
            parent = None if self.parent is None else models.to_bytes(self.parent)
            self._store.commit({"position": done, "n_rows": self.n_rows_seen_, "parent": parent})
            self.position = done

    def close(self) -> None:
        """Release the folder. What was not committed is lost."""
        with self._lock:
            self._store.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "keyed models are partly on disk and cannot be copied or pickled: commit() them to a "
            "folder and open that, or copy the model of a key, models[key]"
        )

    def _resume(self, model: StoredModel) -> None:
        """Restore the state in the folder, or initialise a new one."""
        store = self._store
        own = {
            "format": KIND,
            "version": FORMAT_VERSION,
            "key": manifest.encode(self.key, "the key's column"),
            "parent": self.parent is not None,
            "model": models.pack(model)[0],
        }
        text = json.dumps(own, sort_keys=True)
        found = store.note("made_of")
        if found is None:
            if not store.is_temporary:
                store.commit({"made_of": text})
        elif found != text:
            raise ValueError(difference(json.loads(found), own, str(store.folder)))
        elif store.note("position") is not None:
            self.position, self.n_rows_seen_ = store.note("position"), store.note("n_rows")
            if self.parent is not None:
                self.parent = models.from_bytes(store.note("parent"), CLASSES)

    # ------------------------------------------------------------------ keys
    def _entry(self, key: Hashable) -> KeptModel:
        """Return a key's model, which will learn; that of a new key is stored when it has."""
        entry = self._store.get(key) or KeptModel(key, self.make())
        entry.is_written = False  # Ctrl-C may come between learning and `keep`
        return entry

    def _tally(self, key: Hashable) -> Tally:
        return self._store.tally(check_key(key)) or self._unknown(key)

    def _unknown(self, key: Hashable) -> NoReturn:
        near = nearest_name(key, self)
        hint = "" if near is None else f"; did you mean {near!r}?"
        raise KeyError(f"no row had the key {key!r}{hint}")
