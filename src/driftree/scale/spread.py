"""Spread: the trees of one forest on many workers, bit for bit the same forest as in one process.

The trees of a forest are independent. A *part* is a smaller forest: the first tree, which reads and
scales the rows for all, and some of the others. Every part learns all rows, and returns the
predictions of its trees from before. The driver's stack learns from these in the order of the
trees, as in one process; the parts' own stacks are not used.

Two things depend on all trees. Useless trees are replaced at regular checks, so batches end there,
and the driver tells a part which tree to replace. And the rows of a step are limited by the widest
tree: parts are told this number. If trees get wider within a batch, parts take different steps;
then they are reset to the state before, and one process learns that batch.

A part is a pure function of its initial state and of the calls since. The driver keeps both: it
restarts a worker that died, repeats the calls, and gets the same results.
"""

from __future__ import annotations

import copy
import os
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from driftree.forests import DynamicModelForest
from driftree.learn.constants import FOREST
from driftree.learn.estimator import SEEN
from driftree.learn.tables import Seen
from driftree.learn.validation import shown
from driftree.streams.rows import cut, take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from driftree.learn.forest import Forest
    from driftree.learn.forest_engine import StepSaid
    from driftree.streams.rows import Blocks

EVERY = 50_000  # rows after which the driver collects the trees, and drops the rows
NEVER = 2**62  # rows after which a part would check its trees itself
OF_STACK = ("weights", "agreement", "losses", "rows")  # by tree; the last two also for the forest


# ---------------------------------------------------------------------- parts of a forest
class PartAnswer(NamedTuple):
    """The result of a part for a batch."""

    said: list[NDArray[np.float64]]
    """By step: the predictions of its trees,"""
    targets: list[NDArray[np.float64]]
    """and the targets."""
    step_rows: int
    """The largest number of rows of a step from now on."""


class Part:
    """Some trees of a forest, in a process of their own.

    Parameters
    ----------
    data : bytes
        The result of `part_of` or `give`.
    """

    def __init__(self, data: bytes) -> None:
        kind, state, self.is_first = pickle.loads(data)
        self.model = kind.__new__(kind)
        self.model.__setstate__(state)

    @property
    def _core(self) -> Any:
        return self.model._tree.core

    def learn(self, rows: tuple[Any, Any], step_rows: int) -> PartAnswer:
        """Learn a batch in steps of at most so many rows; return the trees' predictions."""
        core = self._core
        told: list[StepSaid] = []
        core.told, core.most_rows = told, step_rows
        try:
            self.model.partial_fit(*rows)
        finally:
            core.told = core.most_rows = None
        first = 0 if self.is_first else 1  # the first tree is in all parts
        said = [one.said[first:] for one in told]
        return PartAnswer(said, [one.targets for one in told], self.step_rows())

    def step_rows(self) -> int:
        """Return the largest number of rows of a step."""
        return int(self.model._tree.step_rows)

    def renew(self, place: int | None, number: int, n_rows: int) -> int:
        """Replace a tree here, or, with None, elsewhere; return `step_rows`."""
        core = self._core
        with core.writing():
            if place is None:
                core.extend_scale()
            else:
                core.renew(place, number, n_rows)
                core.members[place].tree.end_call()  # as in one process
        return self.step_rows()

    def give(self) -> bytes:
        """Return its state as bytes."""
        return pickle.dumps((type(self.model), self.model.__getstate__(), self.is_first))

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()


def part_of(model: DynamicModelForest, places: Sequence[int], *, is_first: bool) -> bytes:
    """Return a part with the first tree and those at some indices."""
    own, state = [0, *places], model.__getstate__()
    learnt, n = state["_learnt"], len(state["_learnt"]["members"])
    arrays: dict[str, NDArray[Any]] = learnt["arrays"]
    table = arrays["stack.curvature"].reshape(n, n)
    found = {
        "stack.curvature": table[np.ix_(own, own)].reshape(-1),
        "stack.square": arrays["stack.square"],
        "stack.seen": arrays["stack.seen"],
        "scale": arrays["scale"],
        "looks": np.empty(0),
        "counts": np.array([arrays["counts"][0], NEVER, 0]),
        "since": arrays["since"][own],
    }
    for name in OF_STACK:
        values = arrays[f"stack.{name}"]
        found[f"stack.{name}"] = values[own if len(values) == n else [*own, n]]
    for i, place in enumerate(places, 1):
        found |= _renamed(arrays, f"pairs{place}.", f"pairs{i}.")
    state["_learnt"] = learnt | {
        "parameters": replace(learnt["parameters"], n_trees=len(own)),
        "members": [learnt["members"][i] for i in own],
        "replaced": [],
        "arrays": found,
    }
    return pickle.dumps((type(model), state | {"n_trees": len(own)}, is_first))


def take_trees(model: DynamicModelForest, parts: Sequence[bytes], places: list[list[int]]) -> None:
    """Copy the trees of all parts into a forest, which has their weights."""
    learnt = model.__getstate__()["_learnt"]
    arrays = {
        name: array for name, array in learnt["arrays"].items() if not name.startswith("pairs")
    }
    members: list[Any] = learnt["members"]
    since = arrays["since"].copy()
    for i, (data, own) in enumerate(zip(parts, places, strict=True)):
        found = pickle.loads(data)[1]["_learnt"]
        there = found["arrays"]
        if i == 0:
            members[0] = found["members"][0]
            scale, next_scale = there["scale"], there["counts"][0]
        for j, place in enumerate(own, 1):
            members[place], since[place] = found["members"][j], there["since"][j]
            arrays |= _renamed(there, f"pairs{j}.", f"pairs{place}.")
    counts = np.array([next_scale, *arrays["counts"][1:]])
    arrays |= {"scale": scale, "counts": counts, "since": since}
    model._take_over(learnt | {"arrays": arrays, "members": members})


def _seen_by(part: bytes) -> Seen:
    """Return scikit-learn's attributes of the features, which a part's first batch may set."""
    state, seen = pickle.loads(part)[1], Seen()
    for name in SEEN:
        if name in state:
            setattr(seen, name, state[name])
    return seen


def _renamed(arrays: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {
        new + name.removeprefix(old): array
        for name, array in arrays.items()
        if name.startswith(old)
    }


# ---------------------------------------------------------------------- where parts are
class Workers(Protocol):
    """The workers, each with one part."""

    def share(self, rows: tuple[Any, Any]) -> Any:
        """Send rows once, to all."""

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all parts in parallel; return the results."""

    def restart(self, parts: Sequence[bytes]) -> None:
        """Set the state of the parts; earlier calls are dropped."""

    def undo(self) -> None:
        """Reset all parts to the state before the last call."""

    def close(self) -> None:
        """Stop."""


Command = tuple[str, tuple[Any, ...]]


class Here:
    """All parts in this process, as a reference for tests."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.restart(parts)
        self.parts = [Part(data) for data in parts]

    def share(self, rows: tuple[Any, Any]) -> Any:
        """Return the rows unchanged."""
        return rows

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of one part after the other."""
        self._told.append((method, arguments))
        return [
            getattr(part, method)(*own) for part, own in zip(self.parts, arguments, strict=True)
        ]

    def restart(self, parts: Sequence[bytes]) -> None:
        """Set the state from which `undo` starts."""
        self._begun = [*parts]
        self._told: list[tuple[str, Sequence[tuple[Any, ...]]]] = []

    def undo(self) -> None:
        """Start again, and repeat all calls except the last."""
        told, self._told = self._told[:-1], []
        self.parts = [Part(data) for data in self._begun]
        for method, arguments in told:
            self.call(method, arguments)

    def close(self) -> None:
        """Do nothing."""


class Actors:
    """A Ray actor for each part. Ray does not retry: dead actors are restarted from here."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        from driftree.scale.ray import import_ray

        self._ray = import_ray()
        self._actor = self._ray.remote(Part).options(max_restarts=0, max_task_retries=0)
        self.restart(parts)
        self.actors = [self._actor.remote(data) for data in parts]

    def share(self, rows: tuple[Any, Any]) -> Any:
        """Put rows into Ray's object store."""
        return self._ray.put(rows)

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all parts; repeat it for those that die."""
        asked = []
        for i, own in enumerate(arguments):
            self._told[i].append((method, own))
            asked.append(getattr(self.actors[i], method).remote(*own))
        return [self._get(i, answer) for i, answer in enumerate(asked)]

    def _get(self, i: int, answer: Any) -> Any:
        while True:
            try:
                return self._ray.get(answer)
            except self._ray.exceptions.RayActorError:
                answer = self._begin_again(i)

    def _begin_again(self, i: int) -> Any:
        """Repeat all calls on a new actor; return the reference to the last result."""
        self.actors[i] = self._actor.remote(self._begun[i])
        answer = None
        for method, own in self._told[i]:
            answer = getattr(self.actors[i], method).remote(*own)
        return answer

    def restart(self, parts: Sequence[bytes]) -> None:
        """Set the state from which dead workers are restarted."""
        self._begun = [*parts]
        self._told: list[list[Command]] = [[] for _ in parts]

    def undo(self) -> None:
        """Start new actors, and repeat all calls except the last."""
        self.close()
        for i, told in enumerate(self._told):
            del told[-1]
            self._begin_again(i)

    def close(self) -> None:
        """Stop the actors."""
        for actor in self.actors:
            self._ray.kill(actor)


# ---------------------------------------------------------------------- the driver
class Spread:
    """A forest with its trees on workers.

    Parameters
    ----------
    model : DynamicModelForest
        A fitted forest. `gather` updates it from the parts.
    n_workers : int
        Number of parts, at most the number of trees minus one.
    start : callable
        Starts workers with their parts.
    """

    def __init__(
        self, model: DynamicModelForest, n_workers: int, start: Callable[[Sequence[bytes]], Workers]
    ) -> None:
        self.model = model
        self._own = copy.deepcopy(model)  # whose stack learns, but not its trees
        others = range(1, len(self._forest.members))
        n = min(n_workers, len(others))
        # Alternately, since kinds of trees alternate, too, and each part should have both.
        self._places = [own.tolist() for own in np.array_split(others, n)]
        self._workers = start(
            [part_of(model, own, is_first=i == 0) for i, own in enumerate(self._places)]
        )
        self.n_rows: int = self._forest.core.leader.engine.n_rows
        self._gathered = self.n_rows
        self._step_rows = self._forest.step_rows

    @property
    def _forest(self) -> Forest:
        assert self._own._tree is not None
        return self._own._tree

    @property
    def next_look(self) -> int:
        """Rows of the stream at the next check of the trees."""
        return self._forest.core.next_look

    def learn(self, X: Any, y: Any) -> bool:
        """Learn a batch that ends no later than the next check.

        Returns
        -------
        bool
            False if parts took different steps: then nothing was learnt, and one process must do
            it.
        """
        arguments = self._workers.share((X, y)), self._step_rows
        answers: list[PartAnswer] = self._workers.call("learn", [arguments] * len(self._places))
        first = answers[0]
        sizes = [[len(step) for step in answer.targets] for answer in answers]
        if any(own != sizes[0] for own in sizes):
            self._workers.undo()
            return False
        self._step_rows = min(answer.step_rows for answer in answers)
        core = self._forest.core
        has_labels = core.leader.engine.has_labels
        for i, targets in enumerate(first.targets):
            said = np.empty((len(core.members), *first.said[i].shape[1:]))
            said[0] = first.said[i][0]
            for own, answer in zip(self._places, answers, strict=True):
                said[own] = answer.said[i][1:] if answer is first else answer.said[i]
            core.stack.learn(said, targets, np.ones(len(targets)), has_labels=has_labels)
            self.n_rows += len(targets)
        if self.n_rows >= core.next_look:
            self._look()
        if self.n_rows - self._gathered >= EVERY:
            self.gather()
        return True

    def _look(self) -> None:
        core = self._forest.core
        look = core.look()._replace(n_rows=self.n_rows)
        place = core.find_useless(look)
        if place is None:
            return
        number = core.next_number
        core.note_replaced(place, look)
        core.members[place].since = self.n_rows
        found = self._workers.call(
            "renew",
            [
                (own.index(place) + 1 if place in own else None, number, self.n_rows)
                for own in self._places
            ],
        )
        self._step_rows = min(found)

    def gather(self) -> None:
        """Update the model from the parts."""
        parts = self._workers.call("give", [()] * len(self._places))
        take_trees(self._own, parts, self._places)
        self._workers.restart(parts)
        self._gathered = self.n_rows
        whole = copy.deepcopy(self._own)
        assert whole._tree is not None
        self.model._keep(whole._tree, _seen_by(parts[0]))

    def close(self) -> None:
        """Stop the workers."""
        self._workers.close()


def check_spreadable(model: DynamicModelForest) -> None:
    """Raise unless the trees learn independently."""
    if getattr(model, "class_weight", None) or getattr(model, "threshold", None):
        raise ValueError(
            "class_weight and threshold depend on the predictions of all trees before each step: "
            "omit them, or let one process learn (workers=None)"
        )
    if model._tree is not None and model._tree.encoder.sparse is not None:
        raise ValueError(
            "trees of sparse rows each have their own names, and steps that depend on them: let "
            "one process learn (workers=None)"
        )


def fit_forest(
    model: Any,
    blocks: Blocks,
    workers: int | None,
    start: Callable[[Sequence[bytes]], Workers] = Actors,
) -> None:
    """Let a forest learn blocks of rows, with its trees on workers, or None: in this process.

    A call learns many steps, up to the next check of the trees, so that there are few calls.
    """
    if workers is not None:
        if not workers >= 1:
            raise ValueError(f"workers must be a whole number of at least 1, got {shown(workers)}")
        if model.n_trees > 1:
            check_spreadable(model)  # before anything is learnt
    spread: Spread | None = None
    try:
        for block in cut(blocks, FOREST.look_rows):
            begin, n = 0, len(block[1])
            while begin < n:
                if spread is None and workers is not None and _can_spread(model):
                    spread = Spread(model, workers, start)
                end = min(n, begin + (n if model._tree is None else _rows_to_look(model, spread)))
                X, y = take(block, begin, end)
                if spread is not None and not spread.learn(X, y):
                    spread.gather()
                    spread.close()
                    spread = None
                if spread is None:
                    model.partial_fit(X, y)
                begin = end
        if spread is not None:
            spread.gather()
    finally:
        if spread is not None:
            spread.close()


def _can_spread(model: Any) -> bool:
    if model._tree is None or len(model._tree.members) < 2:
        return False
    check_spreadable(model)
    return True


def _rows_to_look(model: Any, spread: Spread | None) -> int:
    if spread is not None:
        return max(1, spread.next_look - spread.n_rows)
    core = model._tree.core
    return max(1, int(core.next_look - core.leader.engine.n_rows))
