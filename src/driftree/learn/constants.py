"""The numbers of the two settings that are not parameters, in one place.

Each was chosen once, over many streams. `docs/algorithm.md` explains them, and `make ablations`
measures the effect of some. The kernels get them from here; their own numbers belong to formulas
(how a reach moves, how bets are weighed). Tests replace `MEASURED` or `PAPER` by a
`dataclasses.replace` of it; a tree keeps the constants it was created with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class MeasuredConstants:
    """Our setting. Rows are those of a node unless stated otherwise."""

    # A step
    step_rows: int = 200
    """Most rows of a batch in one step."""
    step_cells: int = 8_000_000
    """Most cells of the models' matrices touched in one step: 200 rows of up to 200 inputs."""
    step_values: int = 250_000
    """Most values of sparse features in one step: 200 rows of up to 1,250."""
    sample_rows: int = 500
    """Rows of the stream between two samples for the history, at first."""

    # Looking for splits
    first_rows: int = 100
    """Rows from which the bins of the grid are chosen. With 0 there is no grid and no search for
    splits."""
    grid_bytes: int = 4_000_000
    """Most memory of a grid."""
    least_bins: int = 4
    """Fewest bins of a numeric feature, whatever the memory."""
    refresh_rows: int = 200
    """Rows between two searches for new trials."""
    old_refresh_rows: int = 1000
    """The same in calm times, at nodes that are not young."""
    young_rows: int = 10_000
    """Rows up to which a node is young."""
    trial_rows: int = 1000
    """Rows after which a trial without a gain is dropped."""
    barred_rows: int = 2000
    """Rows for which the same split is then not tried again."""
    inner_trials: int = 1
    """Replacements of a split on trial at a time."""
    least_distance: float = 0.03
    """Smallest distance of two thresholds of a feature on a path, as a share of its range."""
    side_variance: float = 0
    """Variance by which the weights of a side may differ from those of the node, as a share of that
    of a weight before anything is learnt. The models of a trial start with it."""
    side_rows: int = 20
    """Rows that a trial needs on either side to be chosen."""
    border_deviations: float = 0.5
    """Standard deviations of a feature within which rows on either side of a threshold tell whether
    it should move. With 0 thresholds do not move."""

    # Trying other models
    curve_pieces: int = 4
    """Pieces of the curve that replaces a feature's line."""
    most_levels: int = 16
    """Most values of a feature for which the first curve has a knot at each: they may be codes."""
    most_bends: int = 64
    """Most pieces of all curves in the first race."""
    most_codes: int = 64
    """Most values of a feature for which a finer curve has a knot at each. Finer curves race with
    coarse ones that won."""
    short_memory: float = 1 / 3
    """The shorter memory on trial, as a share of the usual one."""
    unbend_rows: int = 5000
    """Rows within which a curve must earn enough to stay, and another memory must win."""
    renew_rows: float = 200
    """Rows of a leaf after which its renewed model is copied anew, unless it leads."""
    renewed_doubt: float = 3
    """Handicap of the renewed model, in nats."""
    renewed_rest: float = 1
    """Nats that it must be behind, besides the handicap, to learn only some rows in calm times."""
    renewed_harm: float = 6
    """Nats that a leaf must lately have lost beyond those of no model, with which all labels are
    equally likely, for its renewed model to start from zero."""
    most_bars: int = 5
    """How often the wait for the next trial of another model doubles after a failure."""

    # Sparse features
    sparse_step: float = 0.5
    """Adagrad's step for inputs without a column. With one, it is 1."""
    first_look_rows: int = 200
    """Rows of the stream after which features may first get a column."""
    look_rows: int = 10_000
    """Most rows between two such checks; the interval doubles up to this."""
    prominent_share: float = 0.02
    """Share of the gradients' energy that a feature needs to be split upon."""
    prominent_rows: float = 20
    """Rows with the feature that it needs."""
    most_prominent: int = 16
    """Most such features."""
    most_columns: int = 100
    """Most features with a column among those that most rows hold."""
    most_wide_columns: int = 256
    """The same for a wide table. They are learnt together, at quadratic cost."""

    # What a change must prove
    nats_per_parameter: float = 0.1
    """What each free parameter of a model adds to -log(epsilon)."""
    split_price: float = 0.001
    """What each split must earn, in nats per row of the stream."""
    prune_share: float = 0.25
    """A branch that has lost more than this share of what a split must prove is pruned."""
    link_factor: float = 4
    """What the noise floor must prove, as a multiple of what a split must."""

    # What is spared in calm times
    rest_factor: float = 16
    """A node may rest when its branch has gained this multiple of what a split must prove."""
    rest_least: float = 0.5
    """It rests as long as the recent gain is at least this share of it."""
    rest_share: int = 4
    """A resting node learns one row in so many."""
    nodes_always_rest: bool = True
    """Whether it rests at any time, not only in calm times."""
    trials_rest: bool = False
    """Whether its trials and its grid learn none at all."""
    trial_rest_rows: float = 200
    """A trial of more rows without a gain also learns only one row in `rest_share`."""
    model_rest_rows: float = 200
    """The same for another model on trial."""
    grid_rest_rows: float = 2000
    """The grid of a node with more rows does the same."""
    costly_columns: int = 128
    """With more columns, rows are costly: trials, other models and grids always rest."""
    single_columns: int = 128
    """With more columns, Newton's matrix is in single precision."""
    costly_trials: int = 1
    """Splits on trial at a time where rows are costly, besides those with a gain."""
    costly_grid_bytes: int = 1_500_000
    """Most memory of a grid where rows are costly."""
    block_rows: int = 64
    """Rows in a block. Rows that come one at a time are learnt by their leaf's model at once and by
    everything else in blocks. Decisions are made between blocks."""
    wait_bytes: float = 131_072
    """There are blocks where the models are larger than this. Those of small trees stay in the
    cache anyway."""
    recent_speed: int = 16
    """How many times as fast as the evidence the *recent* sums fade."""
    alarm_factor: float = 1.2
    """Times are not calm when the recent loss is this multiple of the long-run loss"""
    alarm_nats: float = 0
    """and exceeds it by so many nats per row."""
    restless_share: float = 0.5
    """How long this lasts, as a share of the evidence window."""

    # The simple models
    input_limit: float = 1.5
    """Inputs are halved z-scores, clipped to this: three deviations."""
    rows_per_input: float = 20
    """Fewest rows per input that Newton remembers."""
    passes: int = 3
    """Passes of Adagrad over the rows of a step."""
    step: float = 1
    """Adagrad's step."""
    clear_lead: float = 2
    """Newton's lead over Adagrad, in nats, from which one pass over a single row is enough."""
    most_sure: float = 20
    """Nats that a row may cost a model that is mostly wrong before it becomes less sure."""
    variance: float = 1
    """Variance of a weight before anything is learnt."""
    sureness_window: float = 500
    """Rows from which a model learns how sure it may be. With 0 it is not corrected."""
    mean_curvature: bool = True
    """Whether Newton divides by the mean curvature over the labels instead of half its sum."""
    floor_first: float = 0.1
    """Noise floor of either label at the start."""
    floor_first_rows: float = 1000
    """Rows that this counts for."""
    floor_rows: float = 10_000
    """Rows that the noise floor remembers later."""
    floor_least: float = 1e-6
    """Smallest noise floor."""
    floor_most: float = 0.5
    """Largest sum of both noise floors."""
    spread_rows: float = 500
    """Rows that the spread of a number around its prediction remembers."""
    spread_first_rows: float = 5
    """Rows that the first spread counts for."""
    spread_least: float = 1e-8
    """Smallest spread, as a share of the target's variance."""


@dataclass(frozen=True, slots=True)
class PaperConstants:
    """The paper's setting."""

    step_rows: int = 2**24
    """Most rows of a step: the whole batch, up to the 24 bits of a row's number in the kernels."""
    sample_rows: int = 10_000
    """Rows of the stream between two samples for the history, at first."""
    least_weight: float = 1e-100
    """Smallest weight of a side of a candidate: with less, (6) may overflow a float."""
    waiting_rows: int = 32
    """Rows of a node whose gradients the kernels have not yet added to the candidates' sums, at
    most."""


@dataclass(frozen=True, slots=True)
class WatchConstants:
    """How drifts are detected, in both settings; see `docs/monitor.md`."""

    alarms_per_million: float = 1
    """Expected false alarms per million rows of a stream without a change."""
    keep_one_in: int = 16
    """One row in so many is kept, with its loss at the time."""
    check_rows: int = 1000
    """Rows of the stream between two checks."""
    checks_later: int = 8
    """A check computes the present loss of the rows kept so many checks ago."""
    most_earlier: int = 100
    """The mean excess is compared with so many earlier ones, at most half of all so far."""
    least_excess: float = 0.02
    """In nats per row. An excess above this and above all earlier ones counts for more than its
    rank."""
    most_excess: float = 4
    """Most nats of excess per row, in either direction: the loss of a label with 2 %."""
    most_values: int = 100_000
    """Most values of all rows kept."""

    @property
    def level(self) -> float:
        """What the evidence must reach: the expected number of checks between two false alarms."""
        return 1e6 / self.alarms_per_million / self.check_rows


WATCH = WatchConstants()
MEASURED = MeasuredConstants()
# Without bends (max_bends=0) the tree is the default of before bends, bit for bit.
STRAIGHT = replace(
    MEASURED,
    first_rows=300,
    least_distance=0,
    border_deviations=0,
    split_price=0,
    short_memory=1,
    renew_rows=math.inf,
    variance=10,
    sureness_window=0,
    mean_curvature=False,
    trial_rest_rows=math.inf,
    grid_rest_rows=math.inf,
    nodes_always_rest=False,
    costly_columns=2**31 - 1,
    single_columns=2**31 - 1,
    block_rows=1,
)


# For numbers, a loss may be negative, so that multiples of it mean nothing, and the spread says how
# sure a model is.
def _for_numbers(constants: MeasuredConstants) -> MeasuredConstants:
    return replace(
        constants,
        alarm_factor=1,
        alarm_nats=0.3,
        most_sure=math.inf,
        sureness_window=0,
        step=0.1,
        variance=4,
        input_limit=3,
        restless_share=0.1,
        young_rows=2000,
        renewed_doubt=0,
        renewed_rest=math.inf,
    )


MEASURED_NUMBERS = replace(
    _for_numbers(MEASURED), rest_factor=4, trials_rest=True, side_variance=0.03
)
STRAIGHT_NUMBERS = _for_numbers(STRAIGHT)
PAPER = PaperConstants()


@dataclass(frozen=True, slots=True)
class PairConstants:
    """The budget of a tree of a forest that sees hinges of pairs."""

    pairs_per_feature: int
    """Hinges per numeric feature."""
    most_pairs: int
    """Most hinges."""
    max_depth: float
    """Largest depth; inf: that of the forest."""
    max_bends: float
    """Most bends; inf: those of the forest."""
    memory: float
    """Memory of its models, as a share of that of a single tree."""


GROWING = PairConstants(
    pairs_per_feature=4, most_pairs=40, max_depth=math.inf, max_bends=math.inf, memory=1
)
# A single model without trials: cheap, and quick to follow a concept that moves.
FLAT = PairConstants(pairs_per_feature=8, most_pairs=80, max_depth=0, max_bends=0, memory=1 / 3)


@dataclass(frozen=True, slots=True)
class ForestConstants:
    """A forest. Rows are those of the stream."""

    # Hinges of pairs: further inputs of all trees but the first
    turns: tuple[PairConstants, ...] = (FLAT, GROWING)
    """The kinds of these trees, in turn. The weights show which are useful."""
    most_deviations: float = 3
    """Most standard deviations of a number from its mean, as a hinge sees it."""
    scale_rows: int = 32
    """Rows after which numbers are first scaled for hinges; later whenever rows have doubled."""

    # Less than a single tree has: more would cost much and bring little
    trials: int = 1
    """Most splits on trial at a time."""
    inner_trials: int = 0
    """Replacements of a split on trial at a time: with 0 it must be pruned first."""
    bins: int = 8
    """Most bins of a numeric feature."""
    passes: int = 1
    """Passes of Adagrad over the rows of a step."""
    single_columns: int = 0
    """With more columns, Newton's matrix is in single precision."""

    # Combining the trees
    window: float = 2000
    """Rows that the weights of the trees remember."""
    prior: float = 100
    """Rows that the equal weights at the start count for, about."""
    most_step: float = 0.2
    """Largest change of a weight in a step."""
    mixed: float = 0.01
    """Share of the uniform distribution in the prediction of a tree, so that none can veto."""
    clear: float = 3
    """Multiple of the typical error of a number beyond which an error is clipped."""

    # Checking the trees
    look_rows: int = 1000
    """Rows between two checks."""
    most_looks: int = 200
    """Most checks in the history; when it is full, every other one is dropped."""
    youth_rows: int = 5000
    """Rows after which a useless tree is replaced."""


FOREST = ForestConstants()
FOREST_NUMBERS = replace(FOREST, turns=(GROWING,))  # hinges alone seldom fit numbers


@dataclass(frozen=True, slots=True)
class ImbalanceConstants:
    """Weights and thresholds of labels. Rows are those of the stream."""

    window: float = 20_000
    """Rows that both remember in the paper's setting, which has no window."""

    # Weights
    most: float = 6
    """Largest weight of a row. Only ratios matter; larger weights make noise look like evidence,
    and models take at most eight steps for a row."""
    least_mean: float = 0.02
    """Smallest mean weight: rows of little weight are learnt slowly."""
    prior_rows: float = 5
    """Rows that each label counts for before it is seen."""

    # Thresholds
    bins: int = 256
    """Bins of the log-odds."""
    step: float = 0.125
    """Width of a bin."""
    least_scale: float = 1e-6
    """Common factor of a histogram below which it is multiplied into the bins."""
    least_rows: float = 10
    """Rows of either label that a threshold needs."""
    recall_step: float = 0.05
    """How far a positive row moves the target of the recall, until the recall asked for holds."""
    precision_step: float = 0.01
    """The same for the precision and a row predicted as positive."""
    promised_rows: float = 10
    """Rows that the precision of each threshold starts with, of which its probability is the share
    of hits: a few hits may be luck."""


IMBALANCE = ImbalanceConstants()
