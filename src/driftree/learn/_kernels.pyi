"""The typed face of the compiled kernels (src/kernels).

An engine holds a tree and does the work of one step: `accumulate`, `absorb`, and the training of
the simple models, all three by `learn`. It holds no policy: the numbers that it goes by are handed
to it, and what is split, replaced or pruned is decided in `tree`. All arrays are copies.
"""

from collections.abc import Callable, Sequence
from types import NotImplementedType
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from driftree.learn.losses import Loss

_Doubles: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
_Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
_Ids: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
_Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
_Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]

REACH_LEVELS: list[float]
"""Shares of rows for which the engine knows how far an interval must reach."""
LARGEST_NUMBER: float
"""The largest target that is a number."""
SKETCH: int
"""A grid sees sparse inputs hashed into so many."""
MOST_LEAD: float
"""Nats that a renewed model may be ahead or behind."""
KEPT_PREFERENCE: float
"""What a row leaves of a blend's preference,"""
KEPT_WRONG: float
"""and of the share of rows that it was wrong about."""
MOST_TRACE: float
"""Of Newton's matrix, as a multiple of what it is at the start."""
LANES: int
"""The kernels' arrays are whole vectors of so many numbers."""
MAX_LEVELS: int
"""Levels of a categorical feature with codes of their own; later ones share the code MAX_LEVELS."""

def instruction_set() -> str:
    """Name the instruction set in use: "baseline", "avx2" or "avx512" (DRIFTREE_ISA picks one)."""

def instruction_sets() -> list[str]:
    """Name those that the kernels were built for and this processor has, narrowest first."""

def all_finite(X: NDArray[np.float64], n_threads: int = 1) -> bool:
    """Tell whether no number is missing or infinite."""

def unquote(file: bytes, at: int) -> tuple[str, int] | None:
    """Return the JSON string that begins at a place in a file, and where the file goes on.

    Return None if its signs are not all printable ASCII, or if it has escapes of other signs than
    quotation marks and backslashes.
    """

def cut_quoted(
    file: bytes, at: int, part: bytes, most_before: int, most_behind: int
) -> tuple[bytes, str, int] | None:
    """Return a JSON string of a file in two parts, of which the second begins with `part`.

    The first is returned as it lies in the file, from `at` on; the second as text, but for its
    first sign; then comes the place where the file goes on. Return None if either is longer than it
    may be, or if `unquote` would return None for the second.
    """

def pack_arrays(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return arrays of one dimension in one piece, for `StoredArrays.unpack`."""

@final
class SparseRows:
    """What rows hold of sparse features: row i from begin[i] to begin[i + 1]."""

    def __init__(
        self, begin: NDArray[np.int64], ids: NDArray[np.int32], values: NDArray[np.float64]
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> SparseRows: ...
    def take(self, rows: NDArray[np.int64]) -> SparseRows:
        """Return rows by their places, as often as these are named."""
    @property
    def begin(self) -> NDArray[np.int64]: ...
    @property
    def ids(self) -> _Ids: ...
    @property
    def values(self) -> _Doubles: ...

@final
class StoredArrays:
    """The arrays of a file or a pickle as they lie in its bytes; made when they are asked for."""

    @staticmethod
    def unpack(packed: bytes) -> StoredArrays:
        """Return what was packed by `pack_arrays`, on a machine like this one."""
    @staticmethod
    def read(
        file: bytes, begin: int, end: int, short: object, empty: object
    ) -> StoredArrays | None:
        """Read the rest of a header; `short` and `empty` name arrays of one number and of none.

        Return None unless all is as `container` writes it: one dimension each, one behind the other
        until the end of the file, under different and plain names.
        """
    def __len__(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def __getitem__(self, name: str) -> NDArray[Any]: ...
    def without(self, starts: list[str]) -> StoredArrays:
        """Return those whose names do not begin with any of these: itself, if that is all."""
    def under(self, start: str) -> StoredArrays:
        """Return those whose names begin so, by the rest of their names."""
    def names(self) -> list[str]:
        """Return the names in order."""
    def length(self, name: str) -> int:
        """Return how many numbers an array has; 0 if it is not there."""
    def whole(self, name: str) -> int | None:
        """Return the only number of an array of integers; None if it is no such array."""
    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""

class _RowFace:
    """Reads dicts for an engine, with the words that the encoder has for what is in them."""

    @property
    def known(self) -> Any:
        """The record of these words: `names`, `levels` and `labels` are those in use."""
    def commit(
        self,
        known: object,
        *,
        features: list[tuple[bool, bool]],
        categorical: list[tuple[int, bool]],
        levels: list[tuple[int, int]],
        missing: list[int],
        n_classes: int,
    ) -> None:
        """Let the engine grow and take over the words for it: both, or after an error neither.

        Features are pairs of `categorical` and `has_value` (`add_feature`), then come those that
        `make_categorical` turns, the levels (feature, code) and the gaps that get a column.
        """
    def restore(self, known: object, sparse_names: list[Any]) -> None:
        """Take over the words of another model, whose state the engine has taken over before."""
    def learn(
        self, x: object, label: object, weight: float = 1.0, /
    ) -> Turn | NotImplementedType | None:
        """Take one step with one dict, which counts as its weight says.

        If something is due then, return the turn in which it is to be decided: `with turn: ...`. If
        something in the row is new, so that Python must read it, do nothing and return
        NotImplemented.
        """
    def predict(self, x: object, /) -> Any:
        """Return the most probable label of a dict, or NotImplemented if Python must read it."""
    def probabilities(self, x: object, /) -> dict[Any, float] | None:
        """Return the probability of each label of a dict, or None if Python must read it."""
    def read_row(self, x: object, /, *, learning: bool) -> _Matrix | None:
        """Return a dict as a row of numbers, or None if Python must read it."""
    def read_target(self, y: object, /) -> float | None:
        """Return the code of a known label, or the number; None if Python must read it."""
    def codes(self, labels: NDArray[np.int64]) -> _Ids | None:
        """Return the codes of whole numbers, or None if Python must read them."""

    # ------------------------------------------------------------------ sparse features
    @property
    def n_sparse(self) -> int:
        """Sparse features that have a name."""
    def sparse_names(self) -> list[Any]:
        """Return the names by id; None is free."""
    def read_dicts(self, rows: list[Any], *, learning: bool) -> SparseRows | None:
        """Return what dicts hold; None if something is wrong, or if what is new has no room."""
    def sparse_ids(self, names: list[Any], *, learning: bool, centred: bool) -> list[int] | None:
        """Return the ids of names, -1 if not known; None if what is new has no room."""

@final
class MeasuredRowFace(_RowFace):
    """The face of a `MeasuredEngine`."""

    def give_up(self, ids: NDArray[np.int32]) -> None:
        """Forget sparse features."""
    def promote(self, known: object, id: int, has_column: bool) -> int:
        """Make a feature of a sparse one, and take over the words with its name.

        With a column it is one like any other; without, it may only be split upon.
        """

@final
class PaperRowFace(_RowFace):
    """The face of a `PaperEngine`."""

@final
class FimtddRowFace(_RowFace):
    """The face of a `FimtddEngine`."""

@final
class Turn:
    """A block in which a thread has an engine; a turn inside one of the same thread is free."""

    def __enter__(self) -> None:
        """Wait until it is this thread's turn; others may have the interpreter meanwhile."""
    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Let the next ones have their turn."""

@final
class Lock:
    """One thread at a time, which may take it again. A forked process finds it free."""

    def __init__(self) -> None: ...
    def hold(self) -> Turn:
        """Return a block in which no other thread holds or shares it."""
    def share(self) -> Turn:
        """Return a block in which no thread holds it; several may share it."""

class _TreeEngine:
    """What all engines offer to the faces. Only type checkers know this class.

    Every call takes a turn: one thread writes, or many read. `reading` and `writing` make one turn
    of several calls.
    """

    has_level: bool
    """Whether the first features are the recent level of the target; set by Python."""
    @property
    def has_log_link(self) -> bool:
        """Whether the models predict the logarithm of a number."""

    # ------------------------------------------------------------------ turns
    def reading(self) -> Turn:
        """Return a block in which no thread changes anything."""
    def writing(self) -> Turn:
        """Return a block in which no other thread reads or changes anything."""

    # ------------------------------------------------------------------ schema
    def add_feature(self, categorical: bool, has_value: bool) -> int:
        """Add a feature, with a numeric input column if it has a value; return its number."""
    def add_level(self, feature: int, code: int) -> int:
        """Add the indicator column of a level; return its number."""
    def add_missing(self, feature: int) -> int:
        """Add the column "is missing" of a feature; return its number."""
    def make_categorical(self, feature: int, has_value: bool) -> None:
        """Turn a numeric feature that was always missing into one with levels."""
    def set_classes(self, n_classes: int) -> None:
        """Grow to this many classes; fewer than there are is no change."""

    # ------------------------------------------------------------------ rows
    n_threads: int
    """That may work on a call at the same time; no part of the state."""
    def row_face(self, known: object) -> _RowFace:
        """Read dicts by the attributes of a record.

        These are `names`, {name: feature}; `levels`, per feature {level: code} or None; and
        `labels`, {label: code}.
        """
    def most_probable(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.int64]:
        """Return the code of each row's most probable class."""
    def probabilities(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the class probabilities, [rows, classes]."""
    def logits(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the leaves' linear logits, [rows, outputs]."""
    def leaves(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Ids:
        """Return the leaf that each row reaches."""
    def weights(self, node: int) -> _Matrix:
        """Return the weights of a node's model, [outputs, columns and then bends]."""
    def bends(self, model: int) -> list[tuple[int, float, float]]:
        """Return (feature, low, high) of a model's bends: inputs that rise from 0 to 1 there."""
    @property
    def due(self) -> list[int]:
        """Nodes of the last step at which Python has something to decide."""
    @property
    def has_due(self) -> bool:
        """Whether anything is due."""

    # ------------------------------------------------------------------ state
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the whole state as one-dimensional arrays by name."""
    def restore(self, arrays: dict[str, NDArray[Any]] | StoredArrays) -> None:
        """Take over a state made by `arrays` of an engine with the same settings, if it is sound.

        Otherwise ValueError says what is wrong, and the engine is what it was.
        """
    def check(self) -> None:
        """Raise ValueError if the state is not one that the kernels can have made."""
    def memory_usage(self) -> int:
        """Return the bytes held."""
    @property
    def n_classes(self) -> int:
        """Number of classes."""
    def has_node(self, node: int) -> bool:
        """Whether there is a node of this id."""
    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
    @property
    def n_categorical(self) -> int:
        """Features whose values are categories."""
    @property
    def n_features(self) -> int:
        """Number of features."""
    @property
    def n_columns(self) -> int:
        """Inputs of the simple models, the intercept included."""
    @property
    def n_outputs(self) -> int:
        """Logits per model: 1 for up to two classes, else one per class."""
    @property
    def stride(self) -> int:
        """Columns rounded up to whole vectors, as stored."""
    @property
    def n_rows(self) -> int:
        """Rows learnt."""
    @property
    def clock(self) -> float:
        """Weight learnt: the stream's clock T."""

    # ------------------------------------------------------------------ per feature
    @property
    def is_categorical(self) -> _Flags:
        """Whether the splits of a feature are equalities."""
    @property
    def value_column(self) -> _Ids:
        """Numeric input column of a feature, or -1."""
    @property
    def missing_column(self) -> _Ids:
        """Column "is missing" of a feature, or -1."""
    @property
    def level_column(self) -> _Ids:
        """Columns of the levels, [features * (MAX_LEVELS + 1)], -1 for a level not seen."""
    @property
    def scale_weight(self) -> _Doubles:
        """Weight of the values of a numeric feature so far; 0: it was always missing."""
    @property
    def scale_mean(self) -> _Doubles:
        """Mean of the values of a numeric feature so far."""
    @property
    def scale_low(self) -> _Doubles:
        """Lowest value of a numeric feature so far; infinite before there was one."""
    @property
    def scale_high(self) -> _Doubles:
        """Highest value of a numeric feature so far."""
    @property
    def scale_shift(self) -> _Doubles:
        """Inputs are (x - shift) * factor: the shift."""
    @property
    def scale_factor(self) -> _Doubles:
        """Inputs are (x - shift) * factor: the factor."""
    @property
    def scale_limit(self) -> _Doubles:
        """Inputs are at most so far from 0."""
    @property
    def absent(self) -> _Doubles:
        """What each feature is in a row that does not say: NaN, or 0."""
    @property
    def scale_is_indicator(self) -> _Flags:
        """Whether a numeric feature was only 0 and 1 so far, and is not scaled or clipped."""

    # ------------------------------------------------------------------ per node
    @property
    def parent(self) -> _Ids:
        """Parent, or -1."""
    @property
    def left(self) -> _Ids:
        """Left child, or -1 at a leaf."""
    @property
    def right(self) -> _Ids:
        """Right child, or -1 at a leaf."""
    @property
    def feature(self) -> _Ids:
        """Feature of the split, or -1 at a leaf."""
    @property
    def depth(self) -> _Ids:
        """Conditions above the node."""
    @property
    def equality(self) -> _Flags:
        """Whether the split is x == threshold instead of x <= threshold."""
    @property
    def missing_left(self) -> _Flags:
        """Whether missing values go left."""
    @property
    def model(self) -> _Ids:
        """Place of the node's model, or -1."""
    @property
    def alive(self) -> _Flags:
        """Whether the place is in use."""
    @property
    def threshold(self) -> _Doubles:
        """Threshold or level code of the split; -inf is "is missing"."""
    @property
    def rows(self) -> _Doubles:
        """Weight of the rows since the node was made (FIMT-DD: since it became leaf or inner)."""

@final
class NodeState:
    """What a tree asks of a node when it decides."""

    parent: int
    depth: int
    model: int
    is_leaf: bool
    condition: tuple[int, float, bool, bool]
    """Feature (-1 at a leaf), threshold, equality, missing_left."""
    rows: float
    own_loss: float
    subtree_loss: float
    evidence: float
    """Rows behind the two losses, faded like them."""
    clock: float
    """The stream's clock when rows last came: the sums are faded until then."""
    refresh_at: float
    split_level: float
    prune_level: float
    replace_level: float
    rest_level: float
    trials_rest: bool
    """It rests, and its trials and its grid with it: they look at no rows."""

@final
class BendTrial:
    """A model with other bends, beside that of its node."""

    model: int
    """-1: there is none."""
    node_loss: float
    trial_loss: float
    evidence: float
    """Rows behind the two losses, faded like them."""
    born: float
    """Rows of the node when it started."""
    level: float
    next_at: float
    n_failed: int

@final
class Renewed:
    """The second model of a leaf, beside its own."""

    model: int
    """-1: there is none."""
    lead: float
    """Nats by which it has lost less than the leaf's own, faded."""
    born: float
    """Rows of the node when it started."""

@final
class TrialState:
    """A split that is being tried: its losses and those of the others on the same rows."""

    place: int
    condition: tuple[int, float, bool, bool]
    node_loss: float
    subtree_loss: float
    trial_loss: float
    evidence: float
    """Rows behind the losses, faded like them."""
    n_left: float
    n_right: float
    born: float
    """Rows of the node when it started."""
    left_model: int
    right_model: int

class _Sums:
    """What rows add to a tree; sums for the same tree may be added."""

    def __init__(self) -> None: ...
    def __add__(self, other: Self) -> Self: ...
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all of it as one-dimensional arrays by name."""
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `arrays` has returned."""
    @property
    def n_rows(self) -> int:
        """Rows that were summed."""
    @property
    def weight(self) -> float:
        """Their weight."""

@final
class MeasuredSums(_Sums):
    """For a `MeasuredEngine`."""

@final
class PaperSums(_Sums):
    """For a `PaperEngine`."""

class _ModelTreeEngine(_TreeEngine):
    """What the engines of both settings offer. Only type checkers know this class."""

    # ------------------------------------------------------------------ rows
    def learn(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> None:
        """Take one step with a set of rows: X [rows, features], NaN is missing; class codes."""
    def inputs(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the inputs of the simple models, [rows, columns]; the first is 1."""

    # ------------------------------------------------------------------ what is due, and changes
    def inputs_at(
        self, node: int, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> _Matrix:
        """Return the inputs of rows for the model of a node, [rows, columns and then bends]."""
    def effects(self, node: int) -> _Matrix:
        """Return the weights of a node's model, [outputs, columns]; of curves, largest moves."""
    def split(self, node: int, place: int) -> None:
        """Give a node two children by one of its candidates, in place of what it had."""
    def prune(self, node: int) -> None:
        """Make an inner node a leaf and free all nodes below it."""
    def set_levels(
        self, node: int, *, split: float, prune: float, replace: float, rest: float, n_splits: int
    ) -> None:
        """Say what the gains (3), (5) and (4) must reach to be due, and what lets a node rest.

        And how many splits its branch has, for their price.
        """
    def node(self, node: int) -> NodeState:
        """Return what is known of a node."""
    @property
    def task_work(self) -> list[float]:
        """Nanoseconds, about, of each task of the last step; none if one thread did it all."""
    @property
    def link_is_due(self) -> bool:
        """Whether another link has proved what it must."""
    wake_at: int
    """Rows at which `has_due` tells Python to look at the tree; set by Python."""
    @property
    def n_steps(self) -> int:
        """Steps taken."""
    @property
    def n_changes(self) -> int:
        """Changes of the tree since the engine was made."""
    @property
    def n_growths(self) -> int:
        """Changes of the schema since the engine was made."""
    def watch(
        self,
        *,
        keep_one_in: int,
        check_rows: int,
        checks_later: int,
        most_earlier: int,
        least_excess: float,
        most_excess: float,
        most_values: int,
        level: float,
    ) -> None:
        """Keep some rows, and ask later what they would cost now: see `WatchConstants`."""
    def watched_rows(self) -> tuple[_Doubles, _Doubles, _Doubles, _Doubles]:
        """Return the rows kept, their targets, what they cost when they came, and when."""
    def losses(self, X: _Doubles, targets: _Doubles) -> _Doubles:
        """Return what each row would cost now, in nats."""
    def restart_watch(self) -> None:
        """Forget the rows kept, and all checks."""
    @property
    def has_alarm(self) -> bool:
        """Whether the evidence for a drift has reached its level."""
    @property
    def watched_since(self) -> int:
        """Row of the last check that had no evidence for a drift."""
    n_told: int
    """How many of both Python has dealt with, set by it; until then something is due."""

    def floor(self, model: int) -> tuple[float, float]:
        """Return the noise floor per class, zeros under the plain link."""

    # ------------------------------------------------------------------ targets that are numbers
    @property
    def has_labels(self) -> bool:
        """Whether the target is one of several labels; if not, it is a number."""
    @property
    def input_limit(self) -> float:
        """The most that a scaled number is: further out it counts as that.

        A half is a standard deviation; the paper's setting has no limit that matters.
        """
    @property
    def variance_power(self) -> float:
        """With a log link: the power of the mean that variances grow with; 1 for counts."""
    @property
    def target_shift(self) -> float:
        """The models learn (y - shift) / scale."""
    @property
    def target_scale(self) -> float:
        """The models learn (y - shift) / scale."""
    @property
    def reaches(self) -> _Doubles:
        """For each of REACH_LEVELS, how many roots of the spread an interval must reach.

        Of labels: the nats that a label in a set may cost.
        """
    @property
    def offsets(self) -> _Doubles:
        """What is added to each quantile, without the target's unit; empty if there are none."""
    def numbers(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the predicted numbers, [rows, outputs]."""
    def intervals(
        self, X: NDArray[np.float64], reach: float, sparse: SparseRows | None = None
    ) -> _Matrix:
        """Return lower and upper ends, [rows, 2]."""
    def spread(self, model: int) -> float:
        """Return the variance around the prediction, or what the loss has instead."""
    def show_level(self) -> None:
        """Let rows to come know the level of the target after those learnt so far."""

    # ------------------------------------------------------------------ per node
    def class_rows(self, node: int) -> _Doubles:
        """Return the rows of each class that reached a node, faded like its losses."""
    @property
    def own_loss(self) -> _Doubles:
        """Loss of the node's own model (faded in the measured setting)."""
    @property
    def subtree_loss(self) -> _Doubles:
        """Loss of the leaves below on the same rows; at a leaf the own loss."""
    @property
    def born(self) -> _Doubles:
        """The stream's clock when the node was made."""
    @property
    def node_clock(self) -> _Doubles:
        """The stream's clock when rows last reached the node: its sums are faded until then."""
    @property
    def evidence(self) -> _Doubles:
        """Rows behind the two losses, faded like them."""
    @property
    def recent(self) -> _Doubles:
        """What the branch of each node has earned lately."""

@final
class MeasuredEngine(_ModelTreeEngine):
    """A tree in our setting: blended models, and trials as evidence."""

    def __init__(
        self,
        n_classes: int,
        *,
        max_nodes: int,
        seed: int,
        evidence_window: float,
        trials: int,
        first_rows: int,
        rest_share: int,
        rest_least: float,
        recent_speed: int,
        alarm_factor: float,
        restless_rows: float,
        split_price: float,
        model_window: float,
        rows_per_input: float,
        passes: int,
        clear_lead: float,
        most_sure: float,
        variance: float,
        sureness_window: float,
        sparse_step: float,
        mean_curvature: bool,
        floor_first: float,
        floor_first_rows: float,
        floor_rows: float,
        floor_least: float,
        floor_most: float,
        loss: str = "labels",
        step: float = 1.0,
        alarm_nats: float = 0.0,
        renewed_doubt: float = 0.0,
        renewed_rest: float = ...,
        spread_rows: float = 500.0,
        spread_first_rows: float = 5.0,
        spread_least: float = 1e-8,
        input_limit: float = 1.5,
        quantiles: Sequence[float] = (),
        asked: Loss | None = None,
        trial_rest_rows: float = ...,
        model_rest_rows: float = ...,
        grid_rest_rows: float = ...,
        trials_rest: bool = False,
        costly_columns: int = ...,
        block_rows: int = ...,
        wait_bytes: float = ...,
    ) -> None:
        """Make a tree of one leaf; `constants.MeasuredConstants` explains the numbers."""
    def accumulate(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> MeasuredSums:
        """Return what rows would add to the tree; nothing changes."""
    def absorb(self, sums: MeasuredSums) -> None:
        """Add sums that were accumulated for this very tree; no model learns."""

    # ------------------------------------------------------------------ trials
    def trials(self, node: int) -> list[TrialState]:
        """Return the trials of a node."""
    def refresh_at(self, node: int, rows: float) -> None:
        """Say at how many rows of the node its trials are to be looked at again."""
    def first_rows(self, node: int) -> _Matrix:
        """Return the raw rows kept to choose the node's grid, [rows, features]."""
    def grid_is_ready(self, node: int) -> bool:
        """Whether the node's grid has been chosen."""
    def choose_grid(self, node: int, slots: NDArray[np.int32], edges: NDArray[np.float64]) -> None:
        """Give each feature its slots, the last for missing; one edge per slot, NaN for none."""
    def grid_sums(
        self, node: int
    ) -> tuple[list[int], _Doubles, np.ndarray[tuple[int, int, int], np.dtype[np.float64]]]:
        """Return first slots (and the end), counts [slots], gradients [slots, outputs, columns]."""
    # ------------------------------------------------------------------ sparse features
    absent_is_zero: bool
    """Whether all features are sparse until they get a column."""
    most_sparse: int
    """Sparse features that may have a name."""
    look_at: int
    """Rows at which Python wants to look for features worth a column; set by it."""
    @property
    def n_given_up(self) -> int:
        """Sparse features that were forgotten."""
    @property
    def energy_of_all(self) -> float:
        """Energy of the gradient of an input that is always 1."""
    @property
    def sparse_weight(self) -> _Floats:
        """Rows that held each sparse feature; `sparse_mean`, `sparse_squares` are of its values."""
    @property
    def sparse_mean(self) -> _Floats: ...
    @property
    def sparse_squares(self) -> _Floats: ...
    @property
    def sparse_energy(self) -> _Floats:
        """Energy of each one's gradient."""
    @property
    def sparse_feature(self) -> _Ids:
        """The feature that each has become, or -1."""
    @property
    def sparse_is_centred(self) -> _Flags: ...
    def sparse_weights(self, node: int) -> tuple[_Ids, _Matrix]:
        """Return ids and weights [ids, outputs] that a node's model has."""
    def sparse_inputs(self, sparse: SparseRows) -> tuple[NDArray[np.int64], _Ids, _Doubles]:
        """Return begin, ids and inputs of what has no column."""
    def make_sparse(self, n: int) -> None:
        """Make places for so many sparse features in all."""
    def fade_sparse(self, keep: float) -> None:
        """Let what is known of sparse features count for less."""
    def fade_energy(self, keep: float) -> None:
        """Let the energy so far count for less."""

    def proposals(self, node: int) -> list[tuple[float, int, float, bool, bool, int, float]]:
        """Return per feature (score, feature, threshold, equality, missing_left, slot, share)."""
    def start_trial(
        self,
        trial: int,
        feature: int,
        threshold: float,
        equality: bool,
        missing_left: bool,
        slot: int,
        left_share: float,
    ) -> None:
        """Start a trial, a place from node * trials on, with two copies of the node's model."""
    def drop_trial(self, trial: int, barred_until: float) -> None:
        """Free a trial; its slot is not proposed again until the node has seen this many rows."""

    # ------------------------------------------------------------------ bends
    def edges(self, node: int) -> list[_Doubles]:
        """Return the edges of each feature in the node's grid; of categories there are none."""
    def span(self, node: int, feature: int) -> float:
        """Return the last edge of a feature minus its first, or 0 where there are none."""
    def bend_scores(self, node: int) -> tuple[_Doubles, NDArray[np.int32]]:
        """Return what a bend at each edge of the node's grid promises, and the edges' features."""
    def bend_worth(self, model: int) -> list[float]:
        """Return the nats that a model would lose without each of its bends, about."""
    def memory(self, model: int) -> float:
        """Return the rows that a model remembers, as a share of the usual."""
    def renewed(self, node: int) -> Renewed:
        """Return the second model of a leaf; its model is -1 if there is none."""
    def renew(self, node: int) -> None:
        """Let the second model of a leaf start again, with the weights of its own."""
    def bend_trial(self, node: int) -> BendTrial:
        """Return the trial of other bends at a node; its model is -1 if there is none."""
    def start_bend_trial(
        self,
        node: int,
        features: NDArray[np.int32],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        memory: float,
        level: float,
    ) -> None:
        """Try the node's model with these bends, and this memory, instead of its own."""
    def drop_bend_trial(self, node: int) -> None:
        """Free the trial."""
    def bend_level(self, node: int, level: float) -> None:
        """Say from what gain on the trial makes its node due."""
    def next_bend(self, node: int, rows: float, n_failed: int) -> None:
        """Say at how many rows of the node the next trial may start, and how many failed."""
    def bend(self, node: int) -> None:
        """Let the model on trial take the place of the node's own."""

    # ------------------------------------------------------------------ models and link
    def curvature_inverse(self, model: int) -> _Matrix:
        """Return the Newton matrix A of a model, [columns, columns]."""
    def sureness_variance(self, model: int) -> float:
        """Return the variance of the logarithm of a model's sureness."""
    def drop_challenger(self) -> None:
        """Keep the plain link, and have no model that challenges it."""
    def adopt_challenger(self) -> None:
        """Start again from the challenger's model; the other link challenges it from now on."""
    @property
    def challenger(self) -> int:
        """Model that competes with the tree under the other link, or -1."""
    @property
    def challenger_rows(self) -> float:
        """Rows behind the challenger's and the rival's loss, faded like them."""
    @property
    def challenger_loss(self) -> float:
        """Faded loss of the challenger."""
    @property
    def rival_loss(self) -> float:
        """Faded loss of the tree on the rows that the challenger saw."""
    @property
    def challenger_gain(self) -> float:
        """Faded loss of the tree minus that of the challenger."""
    challenger_level: float
    """What `challenger_gain` must reach to be due; set by Python."""
    @property
    def restless_until(self) -> float:
        """The clock up to which no work is spared."""
    @property
    def recent_loss(self) -> float:
        """Mean loss of the last rows, faded as what is called recent; NaN before the first."""
    @property
    def n_waiting(self) -> int:
        """Rows that only their leaves have learnt yet. Asking for it leaves them waiting."""

    @property
    def has_sparse(self) -> bool:
        """Whether there may be features without a column."""
    @property
    def is_costly(self) -> bool:
        """Whether rows are costly: whether they have many columns."""
    @property
    def is_calm(self) -> bool:
        """Whether work is spared: whether there was no alarm for long."""

@final
class PaperEngine(_ModelTreeEngine):
    """A tree in the paper's setting: SGD models, and stored candidates as evidence."""

    def __init__(
        self,
        n_classes: int,
        *,
        max_nodes: int,
        seed: int,
        learning_rate: float,
        gain_step: float,
        candidates: int,
        replacement_rate: float,
        loss: str = "labels",
    ) -> None:
        """Make a tree of one leaf."""
    def accumulate(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> PaperSums:
        """Return what rows would add to the tree; nothing changes."""
    def absorb(self, sums: PaperSums) -> None:
        """Add sums that were accumulated for this very tree; no model learns, none is admitted."""
    def stored_candidates(self, node: int) -> list[tuple[float, int, float, float, float, float]]:
        """Return (gain, feature, value, rows left, rows right, node's loss) over their windows."""

MAX_KEYS: int
"""Thresholds that a leaf of FIMT-DD keeps per feature."""

def page_hinkley(errors: NDArray[np.float64], tolerance: float) -> _Doubles:
    """Return the Page-Hinkley statistic after each error, as the inner nodes of FIMT-DD keep it."""

@final
class FimtddEngine(_TreeEngine):
    """The FIMT-DD tree as arrays indexed by node id (root 0, none -1), and the work per row."""

    def __init__(
        self,
        n_classes: int,
        *,
        learning_rate: float,
        grace_period: float,
        drift_tolerance: float,
        drift_threshold: float,
        drift_rows: float,
        max_nodes: int,
        has_labels: bool = True,
    ) -> None:
        """Make a tree of one leaf; without labels the target is a number: there are 0 classes."""
    def learn(
        self, X: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> int:
        """Learn rows up to the first after which a node is due; return how many."""
    def numbers(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the predicted numbers, of one column."""
    @property
    def has_log_link(self) -> bool:
        """Whether predictors are logarithms: never."""
    @property
    def target_shift(self) -> float:
        """The models learn (y - shift) / scale."""
    @property
    def target_scale(self) -> float:
        """What reductions of the deviation are in units of: the deviation of the target."""
    def best_splits(self, leaf: int) -> list[tuple[float, int, float, bool, bool]]:
        """Return per feature the best (SDR, feature, threshold, equality, missing_left)."""
    def split_points(self, leaf: int, feature: int) -> tuple[_Doubles, _Matrix]:
        """Return the keys of a feature and the class weights (as they came) of rows not above.

        Of a number, three sums in place of the class weights: of 1, of the target, of its square.
        """
    def split(
        self, leaf: int, feature: int, threshold: float, equality: bool, missing_left: bool
    ) -> None:
        """Give a leaf two children that start with its model."""
    def delete_branch(self, node: int) -> None:
        """Make an inner node a leaf that starts with the mean model of the leaves below it."""
    @property
    def error_mean(self) -> _Doubles:
        """Page-Hinkley at inner nodes: mean error."""
    @property
    def error_sum(self) -> _Doubles:
        """Page-Hinkley at inner nodes: sum of (error - mean - tolerance)."""
    @property
    def least_sum(self) -> _Doubles:
        """Page-Hinkley at inner nodes: the least that this sum has been."""

# ---------------------------------------------------------------------- forests
@final
class Stack:
    """Adds up what the members of a forest say, with weights that follow the loss.

    Labels: the members' log-odds, centred over the labels. Numbers: a mean whose shares sum to one.
    """

    def links(self, probabilities: NDArray[np.float64]) -> _Matrix:
        """Return one member's log-odds, centred: what its weight is for."""
    def learn(
        self,
        said: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        has_labels: bool,
    ) -> None:
        """Take one step with what members elsewhere have said, as `Forest.said` returns it."""
    def restart(self, member: int) -> None:
        """Forget a member, whose place a new one takes."""
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the state by name."""
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over a state, if it is sound."""
    @property
    def weights(self) -> _Doubles:
        """What each member's log-odds count."""
    @property
    def shares(self) -> _Doubles:
        """What each member's number counts; the sum is one."""
    @property
    def losses(self) -> _Doubles:
        """Loss of each member over the last rows, faded, and of all together."""
    @property
    def agreement(self) -> _Doubles:
        """Rows, faded, in which each member said what all together did."""
    @property
    def rows(self) -> _Doubles:
        """Rows behind both, faded: since each member came, and all."""

@final
class Forest:
    """The members of a forest: their steps, and what they say together.

    Of rows with sparse features each member takes its own list; others are the same for all.
    """

    scale: NDArray[np.float64]
    """Shift and factor of each feature, as hinges see it: z = (x - shift) * factor."""
    wake_at: int
    """Rows of the stream at which `has_due` becomes true."""
    n_threads: int
    """Threads that may work at the same time: what is learnt is the same to the bit."""

    def __init__(
        self,
        n_members: int,
        *,
        window: float,
        prior: float,
        most_step: float,
        mixed: float,
        clear: float,
        most_deviations: float,
    ) -> None:
        """Start with equal weights; `constants.ForestConstants` explains the numbers."""
    def set_member(
        self,
        place: int,
        engine: MeasuredEngine,
        sources: NDArray[np.int32],
        ends: NDArray[np.int32],
        slopes: NDArray[np.float64],
    ) -> None:
        """Give a place to a tree, which from then on scales features as the first one does.

        Its feature c is feature sources[c] of the first tree, or where that is negative the hinge
        -1 - sources[c], which is max(0, a z_p + b z_q + c): `ends` has p and q, `slopes` a, b and c
        of each. No sources: it has the features of the rows.
        """
    def reading(self) -> Turn:
        """Return a block in which no thread changes anything."""
    def writing(self) -> Turn:
        """Return a block in which no other thread reads or changes anything."""
    def learn(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: list[SparseRows] | None,
        decide: Callable[[int], None],
    ) -> None:
        """Take one step: all say what they think of the rows, and learn them.

        With several threads `decide` is called with the places of members that are due while others
        still learn, though not of the first. Who is due then and was not decided is up to Python.
        """
    @property
    def said(self) -> NDArray[np.float64]:
        """Return what each said in the last step: [members, rows, labels], or one number each."""
    def log_odds(self, X: NDArray[np.float64], sparse: list[SparseRows] | None = None) -> _Matrix:
        """Return the log-odds of all together, centred, [rows, classes]."""
    def probabilities(
        self, X: NDArray[np.float64], sparse: list[SparseRows] | None = None
    ) -> _Matrix:
        """Return the probabilities of all together, [rows, classes]."""
    def numbers(self, X: NDArray[np.float64], sparse: list[SparseRows] | None = None) -> _Matrix:
        """Return the numbers of all together, [rows, outputs]."""
    def rows_of(self, member: int, X: NDArray[np.float64]) -> _Matrix:
        """Return rows as a member sees them."""
    def learn_row(
        self, face: _RowFace, x: object, y: object, weight: float = 1.0, /
    ) -> Turn | NotImplementedType | None:
        """Take one step with one dict, read by the first tree's face; returns what that does."""
    def predict_row(self, face: _RowFace, x: object, /) -> Any:
        """Return the label or the number of a dict, or NotImplemented if Python must read it."""
    def probabilities_row(self, face: _RowFace, x: object, /) -> dict[Any, float] | None:
        """Return the probability of each label of a dict, or None if Python must read it."""
    def memory_usage(self) -> int:
        """Return the bytes that are kept ready for the next step."""
    @property
    def stack(self) -> Stack:
        """What adds up what the members say."""
    @property
    def has_due(self) -> bool:
        """Whether Python has something to decide."""
