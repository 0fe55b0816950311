"""Type stubs of the compiled kernels (src/kernels).

An engine holds a tree and does the work of one step: `accumulate`, `absorb`, and the training of
the simple models; `learn` does all three. It contains no policy: Python passes its numbers, and
`tree` decides what is split, replaced or pruned. All arrays are copies.
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
"""Shares of rows for which the engine learns the reach of an interval."""
LARGEST_NUMBER: float
"""Largest absolute value of a numeric target."""
SKETCH: int
"""Length of the sketch of sparse inputs in a grid."""
BORDER_SUMS: int
"""Numbers that are summed near the threshold of a split."""
MOST_LEAD: float
"""Largest lead of a renewed model, in nats, in either direction."""
KEPT_PREFERENCE: float
"""Share of a blend's preference that remains after a row."""
KEPT_WRONG: float
"""Share of a blend's share of wrong rows that remains after a row."""
MOST_TRACE: float
"""Largest trace of Newton's matrix, as a multiple of its first trace."""
LANES: int
"""Length of the vectors to which the kernels' arrays are padded."""
MAX_LEVELS: int
"""Most levels of a categorical feature with their own codes; later ones share code MAX_LEVELS."""

def instruction_set() -> str:
    """Return the instruction set in use: "baseline", "avx2" or "avx512"; DRIFTREE_ISA sets it."""

def instruction_sets() -> list[str]:
    """Return the instruction sets that were built and that this processor has, narrowest first."""

def all_finite(X: NDArray[np.float64], n_threads: int = 1) -> bool:
    """Return whether no number is missing or infinite."""

def unquote(file: bytes, at: int) -> tuple[str, int] | None:
    """Return the JSON string at a position of a file, and the position after it.

    Return None if not all of its characters are printable ASCII, or if it has escapes other than of
    quotation marks and backslashes.
    """

def cut_quoted(
    file: bytes, at: int, part: bytes, most_before: int, most_behind: int
) -> tuple[bytes, str, int] | None:
    """Return a JSON string of a file in two parts, the second of which begins with `part`.

    The first is returned as in the file, from `at` on, the second as text without its first
    character, then the position after the string. Return None if either is longer than allowed, or
    if `unquote` would return None for the second.
    """

def pack_arrays(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return one-dimensional arrays as one block of bytes, for `StoredArrays.unpack`."""

@final
class SparseRows:
    """Sparse features of rows: those of row i are at begin[i] to begin[i + 1]."""

    def __init__(
        self, begin: NDArray[np.int64], ids: NDArray[np.int32], values: NDArray[np.float64]
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> SparseRows: ...
    def take(self, rows: NDArray[np.int64]) -> SparseRows:
        """Return rows by index; an index may occur several times."""
    @property
    def begin(self) -> NDArray[np.int64]: ...
    @property
    def ids(self) -> _Ids: ...
    @property
    def values(self) -> _Doubles: ...

@final
class StoredArrays:
    """The arrays of a file or a pickle, in place; an array is created when it is used."""

    @staticmethod
    def unpack(packed: bytes) -> StoredArrays:
        """Return what `pack_arrays` packed on a machine with the same byte order."""
    @staticmethod
    def read(
        file: bytes, begin: int, end: int, short: object, empty: object
    ) -> StoredArrays | None:
        """Read the rest of a header; `short` and `empty` name arrays of one number and of none.

        Return None unless all is as `container` writes it: one dimension each, contiguous up to the
        end of the file, with distinct plain names.
        """
    def __len__(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def __getitem__(self, name: str) -> NDArray[Any]: ...
    def without(self, starts: list[str]) -> StoredArrays:
        """Return the arrays whose names have none of these prefixes: itself if these are all."""
    def under(self, start: str) -> StoredArrays:
        """Return the arrays whose names have this prefix, without the prefix."""
    def names(self) -> list[str]:
        """Return the names in order."""
    def length(self, name: str) -> int:
        """Return the length of an array; 0 if there is none."""
    def whole(self, name: str) -> int | None:
        """Return the only number of an array of integers; None if it is not such an array."""
    @property
    def nbytes(self) -> int:
        """Total bytes of all numbers."""

class _RowFace:
    """Reads dicts for an engine, with the encoder's vocabulary."""

    @property
    def known(self) -> Any:
        """The vocabulary: a record with `names`, `levels` and `labels`."""
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
        """Let the engine and the vocabulary grow: both, or after an error neither.

        Features are pairs of `categorical` and `has_value` (`add_feature`). Then come the features
        for `make_categorical`, the levels (feature, code), and the features that get a column "is
        missing".
        """
    def restore(self, known: object, sparse_names: list[Any], free_places: list[int]) -> None:
        """Adopt the vocabulary of another model, whose state the engine has already adopted."""
    def learn(
        self, x: object, label: object, weight: float = 1.0, /
    ) -> Turn | NotImplementedType | None:
        """Take one step with one dict and its weight.

        If something is due afterwards, return the lock under which it must be decided: `with turn:
        ...`. If something in the row is new, so that Python must read it, change nothing and return
        NotImplemented.
        """
    def takes(self, x: object, label: object, /) -> bool:
        """Return whether nothing in a row is new or wrong, besides new sparse features."""
    def predict(self, x: object, /) -> Any:
        """Return the most probable label of a dict, or NotImplemented if Python must read it."""
    def probabilities(self, x: object, /) -> dict[Any, float] | None:
        """Return the probability of each label of a dict, or None if Python must read it."""
    def read_row(self, x: object, /, *, learning: bool) -> _Matrix | None:
        """Return a dict as a row of numbers, or None if Python must read it."""
    def read_target(self, y: object, /) -> float | None:
        """Return the code of a known label, or the number; None if Python must read it."""
    def codes(self, labels: NDArray[np.int64]) -> _Ids | None:
        """Return the codes of integer labels, or None if Python must read them."""

    # ------------------------------------------------------------------ sparse features
    @property
    def n_sparse(self) -> int:
        """Number of named sparse features."""
    def sparse_names(self) -> list[Any]:
        """Return the names by id; None at free ids."""
    def declare(self, names: frozenset[Any]) -> None:
        """Return NotImplemented for rows in which one of these sparse features holds no text."""
    leaves_names: bool
    """Whether rows with new sparse features are left to Python: None, or NotImplemented."""
    def names_of(self, ids: list[int]) -> list[Any]:
        """Return the names of some ids."""
    def free_places(self) -> list[int]:
        """Return the ids without a name; the last one gets the next name."""
    def read_dicts(self, rows: list[Any], *, learning: bool) -> SparseRows | None:
        """Return sparse features of dicts; None if one is invalid or there is no room for it."""
    def sparse_ids(self, names: list[Any], *, learning: bool, centred: bool) -> list[int] | None:
        """Return the ids of names, -1 if unknown; None if there is no room for new ones."""

@final
class MeasuredRowFace(_RowFace):
    """The row face of a `MeasuredEngine`."""

    def give_up(self, ids: NDArray[np.int32]) -> None:
        """Forget sparse features."""
    def promote(self, known: object, id: int, has_column: bool) -> int:
        """Turn a sparse feature into an ordinary one, and adopt the vocabulary with its name.

        Without a column it can only be split upon.
        """

@final
class PaperRowFace(_RowFace):
    """The row face of a `PaperEngine`."""

@final
class FimtddRowFace(_RowFace):
    """The row face of a `FimtddEngine`."""

@final
class Turn:
    """A context manager that holds an engine's lock; the same thread may nest it."""

    def __enter__(self) -> None:
        """Wait for the lock, without holding the GIL."""
    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Release the lock."""

@final
class Lock:
    """A reentrant readers-writer lock. In a forked process it is free."""

    def __init__(self) -> None: ...
    def hold(self) -> Turn:
        """Return a context in which no other thread holds or shares it."""
    def share(self) -> Turn:
        """Return a context in which no thread holds it; several may share it."""

class _TreeEngine:
    """The common methods of all engines. Only type checkers know this class.

    Every call takes the engine's readers-writer lock; `reading` and `writing` hold it over several
    calls.
    """

    has_level: bool
    """Whether the first features are the recent level of the target; set by Python."""
    @property
    def level(self) -> _Doubles:
        """That level as few rows are learnt with it; empty if there is none."""
    @property
    def has_log_link(self) -> bool:
        """Whether the models predict the logarithm of a number."""

    # ------------------------------------------------------------------ locks
    def reading(self) -> Turn:
        """Return a context in which no thread changes anything."""
    def writing(self) -> Turn:
        """Return a context in which no other thread reads or changes anything."""

    # ------------------------------------------------------------------ schema
    def add_feature(self, categorical: bool, has_value: bool) -> int:
        """Add a feature, with a numeric input column if it has a value; return its number."""
    def add_level(self, feature: int, code: int) -> int:
        """Add the indicator column of a level; return its number."""
    def add_missing(self, feature: int) -> int:
        """Add the column "is missing" of a feature; return its number."""
    def make_categorical(self, feature: int, has_value: bool) -> None:
        """Make a numeric feature that was always missing categorical."""
    def set_classes(self, n_classes: int) -> None:
        """Grow to this many classes; a smaller number changes nothing."""

    # ------------------------------------------------------------------ rows
    n_threads: int
    """Threads for a single call; not part of the state."""
    def row_face(self, known: object) -> _RowFace:
        """Return a reader of dicts with this vocabulary, a record.

        Its attributes are `names`, {name: feature}; `levels`, per feature {level: code} or None;
        and `labels`, {label: code}.
        """
    def most_probable(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.int64]:
        """Return the code of each row's most probable class."""
    def probabilities(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the class probabilities, [rows, classes]."""
    def logits(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the linear predictors of the leaves, [rows, outputs]."""
    def leaves(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Ids:
        """Return each row's leaf."""
    def weights(self, node: int) -> _Matrix:
        """Return the weights of a node's model, [outputs, columns and then bends]."""
    def bends(self, model: int) -> list[tuple[int, float, float]]:
        """Return (feature, low, high) of a model's bends: inputs that rise from 0 to 1."""
    @property
    def due(self) -> list[int]:
        """Nodes of the last step at which Python must decide."""
    @property
    def has_due(self) -> bool:
        """Whether anything is due."""

    # ------------------------------------------------------------------ state
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the whole state as one-dimensional arrays by name."""
    def restore(self, arrays: dict[str, NDArray[Any]] | StoredArrays) -> None:
        """Adopt a state made by `arrays` of an engine with the same settings, if it is sound.

        Otherwise raise ValueError, and leave the engine unchanged.
        """
    def check(self) -> None:
        """Raise ValueError if the kernels could not have reached this state."""
    def memory_usage(self) -> int:
        """Return the memory in bytes."""
    @property
    def n_classes(self) -> int:
        """Number of classes."""
    def has_node(self, node: int) -> bool:
        """Return whether there is a node with this id."""
    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
    @property
    def n_categorical(self) -> int:
        """Number of categorical features."""
    @property
    def n_features(self) -> int:
        """Number of features."""
    @property
    def n_columns(self) -> int:
        """Number of inputs of the simple models, including the intercept."""
    @property
    def n_outputs(self) -> int:
        """Linear predictors per model: 1 for up to two classes, otherwise one per class."""
    @property
    def stride(self) -> int:
        """Columns as stored: rounded up to whole vectors."""
    @property
    def n_rows(self) -> int:
        """Number of rows learnt."""
    @property
    def clock(self) -> float:
        """Weight of all rows learnt: the stream's clock T."""

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
        """Weight of the values of a numeric feature so far; 0 if it was always missing."""
    @property
    def scale_mean(self) -> _Doubles:
        """Mean of the values of a numeric feature so far."""
    @property
    def scale_low(self) -> _Doubles:
        """Lowest value of a numeric feature so far; infinite before the first."""
    @property
    def scale_high(self) -> _Doubles:
        """Highest value of a numeric feature so far."""
    @property
    def scale_shift(self) -> _Doubles:
        """The shift in (x - shift) * factor, which gives the inputs."""
    @property
    def scale_factor(self) -> _Doubles:
        """The factor in (x - shift) * factor, which gives the inputs."""
    @property
    def scale_limit(self) -> _Doubles:
        """Limit of the absolute values of an input."""
    @property
    def absent(self) -> _Doubles:
        """Value of each feature in a row without it: NaN or 0."""
    @property
    def scale_is_indicator(self) -> _Flags:
        """Whether a numeric feature was always 0 or 1 so far, and so is not scaled or clipped."""

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
        """Number of conditions above the node."""
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
        """Weight of the rows since the node was created (FIMT-DD: became a leaf or inner node)."""

@final
class NodeState:
    """The state of a node from which Python decides."""

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
    """The stream's clock at the node's last rows, up to which its sums are faded."""
    refresh_at: float
    split_level: float
    prune_level: float
    replace_level: float
    rest_level: float
    trials_rest: bool
    """Whether the node rests, and its trials and its grid learn no rows at all."""
    change_is_due: bool
    """Whether a split, a replacement, pruning or a shift may have reached its level."""
    model_is_due: bool
    """Whether the other model on trial has reached its level."""
    search_is_due: bool
    """Whether new candidates are to be searched for, or another renewed model is due."""

@final
class BendTrial:
    """A model with other bends on trial, next to the node's own."""

    model: int
    """-1 if there is none."""
    node_loss: float
    trial_loss: float
    evidence: float
    """Rows behind the two losses, faded like them."""
    born: float
    """Rows of the node at the start of the trial."""
    level: float
    price: float
    """What each row behind the losses adds to the level."""
    is_due: bool
    """Whether its gain has reached the level."""
    next_at: float
    n_failed: int

@final
class BorderState:
    """The threshold to which that of a split would best move."""

    threshold: float
    gain: float
    """Nats that the rows between would have lost less on the other side; 0 if there is none."""
    loss: float
    """What they would have lost there."""
    rows: float
    level: float
    """What the gain must reach."""

@final
class Renewed:
    """The renewed model of a leaf."""

    model: int
    """-1 if there is none."""
    lead: float
    """Nats by which it has lost less than the leaf's own model, faded."""
    born: float
    """Rows of the node when it was copied."""
    harm: float
    """Nats that the leaf has lately lost beyond those of no model."""

@final
class TrialState:
    """A split on trial: its losses, and those of the node and its branch on the same rows."""

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
    """Rows of the node at the start of the trial."""
    left_model: int
    right_model: int

class _Sums:
    """Sums over rows for a tree; sums for the same tree can be added."""

    def __init__(self) -> None: ...
    def __add__(self, other: Self) -> Self: ...
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the sums as one-dimensional arrays by name."""
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Adopt what `arrays` has returned."""
    @property
    def n_rows(self) -> int:
        """Number of rows summed."""
    @property
    def weight(self) -> float:
        """Weight of these rows."""

@final
class MeasuredSums(_Sums):
    """Sums for a `MeasuredEngine`."""

@final
class PaperSums(_Sums):
    """Sums for a `PaperEngine`."""

class _ModelTreeEngine(_TreeEngine):
    """The common methods of the engines of both settings. Only type checkers know this class."""

    # ------------------------------------------------------------------ rows
    def learn(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: SparseRows | None = None,
        wholes: NDArray[np.float64] | None = None,
    ) -> None:
        """Take one step with rows: X [rows, features], NaN is missing; class codes or numbers.

        Of rows that are copies of one, the first has its whole weight in `wholes`, the others 0;
        None is `weights`.
        """
    def inputs(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the inputs of the simple models, [rows, columns]; the first is 1."""

    # ------------------------------------------------------------------ nodes and changes
    def inputs_at(
        self, node: int, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> _Matrix:
        """Return the inputs of a node's model, [rows, columns and then bends]."""
    def effects(self, node: int) -> _Matrix:
        """Return the weights of a node's model, [outputs, columns]; for curves, largest moves."""
    def sampled_effects(self, node: int, factor: float) -> NDArray[np.float32]:
        """Return the same, multiplied by a factor, in single precision."""
    def split(self, node: int, place: int) -> None:
        """Give a node two children by one of its candidates, in place of any branch."""
    def prune(self, node: int) -> None:
        """Make an inner node a leaf and free all nodes below it."""
    def set_levels(
        self, node: int, *, split: float, prune: float, replace: float, rest: float, n_splits: int
    ) -> None:
        """Set the gains (3), (5) and (4) from which a node is due, and the level at which it rests.

        Also set the number of splits in its branch, for their price.
        """
    def node(self, node: int) -> NodeState:
        """Return a copy of a node's state."""
    @property
    def task_work(self) -> list[float]:
        """Estimated nanoseconds of each task of the last step; empty if it ran on one thread."""
    @property
    def link_is_due(self) -> bool:
        """Whether the other link has proved enough."""
    wake_at: int
    """Rows from which `has_due` is true; set by Python."""
    @property
    def n_steps(self) -> int:
        """Number of steps."""
    @property
    def n_changes(self) -> int:
        """Number of changes of the tree since the engine was created."""
    @property
    def n_growths(self) -> int:
        """Number of changes of the schema since the engine was created."""
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
        """Keep some rows to compare their losses later: see `WatchConstants`."""
    def watched_rows(self) -> tuple[_Doubles, _Doubles, _Doubles, _Doubles]:
        """Return the kept rows, their targets, their losses when they came, and when that was."""
    def losses(self, X: _Doubles, targets: _Doubles) -> _Doubles:
        """Return the present loss of each row, in nats."""
    def restart_watch(self) -> None:
        """Forget the kept rows and all checks."""
    @property
    def has_alarm(self) -> bool:
        """Whether the evidence for a drift has reached its level."""
    @property
    def watched_since(self) -> int:
        """Row of the last check without evidence for a drift."""
    n_told: int
    """Sum of `n_changes` and `n_growths` up to which Python has dealt with them; set by Python.
    While it is smaller, something is due."""

    def floor(self, model: int) -> tuple[float, float]:
        """Return the noise floor per class; zeros with the plain link."""

    # ------------------------------------------------------------------ numeric targets
    @property
    def has_labels(self) -> bool:
        """Whether the target is a label; otherwise it is a number."""
    @property
    def input_limit(self) -> float:
        """Limit of the absolute value of a scaled number, beyond which it is clipped.

        One half is a standard deviation. In the paper's setting there is no limit that matters.
        """
    @property
    def variance_power(self) -> float:
        """With a log link, the power of the mean that variances grow with; 1 for counts."""
    @property
    def target_shift(self) -> float:
        """The shift in (y - shift) / scale, which the models learn."""
    @property
    def target_scale(self) -> float:
        """The scale in (y - shift) / scale, which the models learn; 0 until y varies."""
    @property
    def reaches(self) -> _Doubles:
        """For each of REACH_LEVELS, the reach of an interval in roots of the spread.

        For labels: the largest loss, in nats, of a label in the set.
        """
    @property
    def offsets(self) -> _Doubles:
        """Offset of each quantile, scaled; empty without quantiles."""
    def numbers(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the predicted numbers, [rows, outputs]."""
    @property
    def has_intervals(self) -> bool:
        """Whether the loss has intervals."""
    def intervals(
        self, X: NDArray[np.float64], reach: float, sparse: SparseRows | None = None
    ) -> _Matrix:
        """Return the lower and upper ends of intervals, [rows, 2]."""
    def spread(self, model: int) -> float:
        """Return the variance around the prediction, or the loss's counterpart of it."""
    def show_level(self) -> None:
        """Make the present level of the target an input of the next rows.

        Unless the last rows were learnt without it: then it is missing until others are not.
        """

    # ------------------------------------------------------------------ per node
    def class_rows(self, node: int) -> _Doubles:
        """Return the rows of each class at a node, faded like its losses."""
    @property
    def own_loss(self) -> _Doubles:
        """Loss of the node's own model (faded in the measured setting)."""
    @property
    def subtree_loss(self) -> _Doubles:
        """Loss of the leaves below on the same rows; at a leaf, its own loss."""
    @property
    def born(self) -> _Doubles:
        """The stream's clock when the node was created."""
    @property
    def node_clock(self) -> _Doubles:
        """The stream's clock at the node's last rows, up to which its sums are faded."""
    @property
    def evidence(self) -> _Doubles:
        """Rows behind the two losses, faded like them."""
    @property
    def recent(self) -> _Doubles:
        """Recent gain of each node's branch."""

@final
class MeasuredEngine(_ModelTreeEngine):
    """A tree in the measured setting: blended models, with trials as evidence."""

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
        renewed_harm: float = ...,
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
        nodes_always_rest: bool = False,
        costly_columns: int = ...,
        single_columns: int = ...,
        block_rows: int = ...,
        wait_bytes: float = ...,
        border_deviations: float = 0.0,
        side_variance: float = 0.0,
    ) -> None:
        """Create a tree of one leaf; `constants.MeasuredConstants` explains the numbers."""
    def accumulate(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> MeasuredSums:
        """Return sums over rows for the tree, which stays unchanged."""
    def absorb(self, sums: MeasuredSums) -> None:
        """Add sums that were accumulated for this very tree; models do not learn."""

    # ------------------------------------------------------------------ trials
    def trials(self, node: int) -> list[TrialState]:
        """Return the trials of a node."""
    def refresh_at(self, node: int, rows: float) -> None:
        """Set the rows of the node at which its trials are due again."""
    def first_rows(self, node: int) -> _Matrix:
        """Return the raw rows from which the node's grid will be chosen, [rows, features]."""
    def grid_is_ready(self, node: int) -> bool:
        """Return whether the node's grid has been chosen."""
    def choose_grid(self, node: int, slots: NDArray[np.int32], edges: NDArray[np.float64]) -> None:
        """Set each feature's slots, the last for missing values, and an edge per slot or NaN."""
    def grid_sums(
        self, node: int
    ) -> tuple[list[int], _Doubles, np.ndarray[tuple[int, int, int], np.dtype[np.float64]]]:
        """Return first slots (and the end), counts [slots], gradients [slots, outputs, columns]."""
    # ------------------------------------------------------------------ sparse features
    absent_is_zero: bool
    """Whether all features are sparse until they get a column."""
    most_sparse: int
    """Most names of sparse features."""
    look_at: int
    """Rows at which Python searches for features worth a column; set by Python."""
    @property
    def n_given_up(self) -> int:
        """Number of sparse features that were forgotten."""
    @property
    def energy_of_all(self) -> float:
        """Energy of the gradient of an input that is always 1."""
    @property
    def sparse_weight(self) -> _Floats:
        """Rows with each sparse feature; `sparse_mean`, `sparse_squares` are of its values."""
    @property
    def sparse_mean(self) -> _Floats: ...
    @property
    def sparse_squares(self) -> _Floats: ...
    @property
    def sparse_energy(self) -> _Floats:
        """Energy of the gradient of each sparse feature."""
    @property
    def sparse_feature(self) -> _Ids:
        """The ordinary feature that each sparse one has become, or -1."""
    @property
    def sparse_is_centred(self) -> _Flags: ...
    def sparse_weights(self, node: int) -> tuple[_Ids, _Matrix]:
        """Return the sparse weights of a node's model: ids, and weights [ids, outputs]."""
    def sparse_inputs(self, sparse: SparseRows) -> tuple[NDArray[np.int64], _Ids, _Doubles]:
        """Return begin, ids and inputs of the features without a column."""
    def make_sparse(self, n: int) -> None:
        """Make room for this many sparse features in total."""
    def fade_sparse(self, keep: float) -> None:
        """Fade the statistics of sparse features."""
    def fade_energy(self, keep: float) -> None:
        """Fade the energies so far."""

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
        """Start a trial at a place from node * trials on, with two copies of the node's model."""
    def drop_trial(self, trial: int, barred_until: float) -> None:
        """Free a trial; its slot is not proposed again until the node has seen this many rows."""

    # ------------------------------------------------------------------ bends
    def edges(self, node: int) -> list[list[float]]:
        """Return the edges of each feature in the node's grid; none for categorical ones."""
    def span(self, node: int, feature: int) -> float:
        """Return the last edge of a feature minus its first, or 0 without edges."""
    def bend_scores(self, node: int) -> tuple[_Doubles, NDArray[np.int32]]:
        """Return the score of a bend at each edge of the node's grid, and the edges' features."""
    def bend_worth(self, model: int) -> list[float]:
        """Return the estimated nats that a model would lose without each of its bends."""
    def memory(self, model: int) -> float:
        """Return the rows that a model remembers, as a multiple of the usual."""
    def border(self, node: int) -> BorderState:
        """Return the threshold to which that of a node would best move."""
    def set_border(self, node: int, *, level: float, low: float, high: float) -> None:
        """Set what that must gain, and the nearest thresholds of its feature above and below it."""
    def shift(self, node: int) -> None:
        """Move the threshold there; the sides and their models stay."""
    def renewed(self, node: int) -> Renewed:
        """Return the renewed model of a leaf; its `model` is -1 if there is none."""
    def renew(self, node: int) -> None:
        """Copy the leaf's model into its renewed model, with the uncertainty reset."""
    def restart(self, node: int) -> None:
        """Let the renewed model of a leaf start from zero."""
    def bend_trial(self, node: int) -> BendTrial:
        """Return the trial of other bends at a node; its `model` is -1 if there is none."""
    def start_bend_trial(
        self,
        node: int,
        features: NDArray[np.int32],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        memory: float,
        level: float,
        price: float,
    ) -> None:
        """Start a trial of the node's model with these bends and this memory."""
    def drop_bend_trial(self, node: int) -> None:
        """Free the trial."""
    def bend_level(self, node: int, level: float, price: float) -> None:
        """Set the gain of the trial from which the node is due, and what each row adds to it."""
    def next_bend(self, node: int, rows: float, n_failed: int) -> None:
        """Set the rows of the node from which a trial may start, and how many have failed."""
    def bend(self, node: int) -> None:
        """Replace the node's model by the one on trial."""

    # ------------------------------------------------------------------ models and link
    def curvature_inverse(self, model: int) -> _Matrix:
        """Return the Newton matrix A of a model, [columns, columns]."""
    def sureness_variance(self, model: int) -> float:
        """Return the variance of the logarithm of a model's sureness."""
    def drop_challenger(self) -> None:
        """Keep the plain link, without a challenger."""
    def adopt_challenger(self) -> None:
        """Restart from the challenger's model; from now on the other link is the challenger."""
    @property
    def challenger(self) -> int:
        """The model that competes with the tree, with the other link; or -1."""
    @property
    def challenger_rows(self) -> float:
        """Rows behind the losses of the challenger and its rival, faded like them."""
    @property
    def challenger_loss(self) -> float:
        """Faded loss of the challenger."""
    @property
    def rival_loss(self) -> float:
        """Faded loss of the tree on the challenger's rows."""
    @property
    def challenger_gain(self) -> float:
        """Faded loss of the tree minus that of the challenger."""
    challenger_level: float
    """The `challenger_gain` from which it is due; set by Python."""
    @property
    def restless_until(self) -> float:
        """The clock up to which nothing rests."""
    @property
    def recent_loss(self) -> float:
        """Mean loss of the last rows, faded like all *recent* sums; NaN before the first."""
    @property
    def n_waiting(self) -> int:
        """Number of buffered rows, learnt only by their leaves so far. Reading it keeps them."""

    @property
    def has_sparse(self) -> bool:
        """Whether there may be features without a column."""
    @property
    def is_costly(self) -> bool:
        """Whether rows are costly, because they have many columns."""
    @property
    def is_calm(self) -> bool:
        """Whether times are calm: no recent alarm, so that nodes may rest."""

@final
class PaperEngine(_ModelTreeEngine):
    """A tree in the paper's setting: SGD models, with stored candidates as evidence."""

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
        """Create a tree of one leaf."""
    def accumulate(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> PaperSums:
        """Return sums over rows for the tree, which stays unchanged."""
    def absorb(self, sums: PaperSums) -> None:
        """Add sums accumulated for this very tree; no model learns, no candidate is admitted."""
    def stored_candidates(self, node: int) -> list[tuple[float, int, float, float, float, float]]:
        """Return (gain, feature, value, rows left, rows right, node's loss) over their windows."""

MAX_KEYS: int
"""Most thresholds per feature in a leaf of FIMT-DD."""

def page_hinkley(errors: NDArray[np.float64], tolerance: float) -> _Doubles:
    """Return the Page-Hinkley statistic after each error, as in the inner nodes of FIMT-DD."""

@final
class FimtddEngine(_TreeEngine):
    """FIMT-DD's tree as arrays by node id (root 0, none -1), and the work per row."""

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
        """Create a tree of one leaf; without labels the target is a number, with 0 classes."""
    def learn(
        self, X: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> int:
        """Learn rows up to the first after which a node is due; return their number."""
    def numbers(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> _Matrix:
        """Return the predicted numbers, [rows, 1]."""
    @property
    def has_log_link(self) -> bool:
        """Whether predictors are logarithms: never."""
    @property
    def target_shift(self) -> float:
        """The shift in (y - shift) / scale, which the models learn."""
    @property
    def target_scale(self) -> float:
        """The target's standard deviation, the unit of its reductions; 0 until it varies."""
    def best_splits(self, leaf: int) -> list[tuple[float, int, float, bool, bool]]:
        """Return per feature the best (SDR, feature, threshold, equality, missing_left)."""
    def split_points(self, leaf: int, feature: int) -> tuple[_Doubles, _Matrix]:
        """Return the keys of a feature, and the class weights of rows not above each.

        Classes are in order of first appearance. For a numeric target there are three sums instead:
        of 1, of the target, of its square.
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
        """Page-Hinkley at inner nodes: the minimum of this sum."""

# ---------------------------------------------------------------------- forests
@final
class Stack:
    """The weighted sum of the members' predictions; the weights follow the loss.

    Labels: the members' log-odds, centred over the labels. Numbers: a mean whose shares sum to one.
    """

    def links(self, probabilities: NDArray[np.float64]) -> _Matrix:
        """Return one member's centred log-odds, to which its weight applies."""
    def learn(
        self,
        said: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        has_labels: bool,
    ) -> None:
        """Take one step with predictions of members elsewhere, as `Forest.said` returns them."""
    def restart(self, member: int) -> None:
        """Forget a member that is being replaced."""
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the state as arrays by name."""
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Adopt a state if it is sound."""
    @property
    def weights(self) -> _Doubles:
        """Weight of each member's log-odds."""
    @property
    def shares(self) -> _Doubles:
        """Share of each member's number; the sum is one."""
    @property
    def losses(self) -> _Doubles:
        """Faded loss of each member over the last rows, and of the whole forest."""
    @property
    def agreement(self) -> _Doubles:
        """Rows, faded, in which each member predicted the same as the forest."""
    @property
    def rows(self) -> _Doubles:
        """Rows behind both, faded: since each member was added, and of the forest."""

@final
class Forest:
    """The members of a forest: their steps, and their common prediction.

    Of rows with sparse features each member has its own list; all other rows are the same for all.
    """

    scale: NDArray[np.float64]
    """Shift and factor of each feature for hinges: z = (x - shift) * factor."""
    wake_at: int
    """Rows of the stream from which `has_due` is true."""
    n_threads: int
    """Threads for a single call; the result is the same, bit for bit."""

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
        """Put a tree in a place; from then on it scales features as the first one does.

        Its feature c is feature sources[c] of the first tree or, if that is negative, the hinge -1
        - sources[c], which is max(0, a z_p + b z_q + c): `ends` has p and q, `slopes` a, b and c of
        each. Without sources it has the features of the rows.
        """
    def reading(self) -> Turn:
        """Return a context in which no thread changes anything."""
    def writing(self) -> Turn:
        """Return a context in which no other thread reads or changes anything."""
    def learn(
        self,
        X: NDArray[np.float64],
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        sparse: list[SparseRows] | None,
        wholes: NDArray[np.float64] | None,
        decide: Callable[[int], None],
    ) -> None:
        """Take one step: all members predict the rows, then learn them.

        With several threads, `decide` is called with the places of members that are due, except the
        first, while others still learn. Members that are due afterwards are left to Python.
        """
    @property
    def said(self) -> NDArray[np.float64]:
        """Predictions of the last step: [members, rows, labels], or one number each."""
    def log_odds(self, X: NDArray[np.float64], sparse: list[SparseRows] | None = None) -> _Matrix:
        """Return the centred log-odds of the forest, [rows, classes]."""
    def probabilities(
        self, X: NDArray[np.float64], sparse: list[SparseRows] | None = None
    ) -> _Matrix:
        """Return the probabilities of the forest, [rows, classes]."""
    def numbers(self, X: NDArray[np.float64], sparse: list[SparseRows] | None = None) -> _Matrix:
        """Return the numbers of the forest, [rows, outputs]."""
    def rows_of(self, member: int, X: NDArray[np.float64]) -> _Matrix:
        """Return the rows with a member's own features."""
    def learn_row(
        self, face: _RowFace, x: object, y: object, weight: float = 1.0, /
    ) -> Turn | NotImplementedType | None:
        """Take one step with one dict, read by the first tree's face; return what that does."""
    def predict_row(self, face: _RowFace, x: object, /) -> Any:
        """Return the label or the number of a dict, or NotImplemented if Python must read it."""
    def probabilities_row(self, face: _RowFace, x: object, /) -> dict[Any, float] | None:
        """Return the probability of each label of a dict, or None if Python must read it."""
    def memory_usage(self) -> int:
        """Return the bytes of memory that is reused between steps."""
    @property
    def stack(self) -> Stack:
        """The weighted sum of the members."""
    @property
    def has_due(self) -> bool:
        """Whether Python must decide."""
