"""Constants: the numbers of the two settings that are not parameters, in one place.

Each was chosen once, over many streams; `docs/algorithm.md` says what they do, and `make ablations`
what some of them bring. They are handed to the kernels, which have only numbers of their own that
belong to a formula (how a reach moves, how bets are weighed). Tests replace `MEASURED` or `PAPER`
by a `dataclasses.replace` of it; a tree keeps those that it was made with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class MeasuredConstants:
    """Our setting. Rows are those of a node, unless stated otherwise."""

    # A step
    step_rows: int = 200
    """Rows of a batch that make one step, at most,"""
    step_cells: int = 8_000_000
    """and cells of the models' matrices that it may touch: 200 rows of up to 200 inputs."""
    step_values: int = 250_000
    """Values of sparse features that a step may hold: 200 rows of up to 1,250."""
    sample_rows: int = 500
    """Rows of the stream between samples for the history, at first."""

    # Looking for splits
    first_rows: int = 100
    """Rows that choose the grid; 0: there is none, as nothing is looked for."""
    grid_bytes: int = 4_000_000
    """Memory of a grid,"""
    least_bins: int = 4
    """which has at least so many bins of each number."""
    refresh_rows: int = 200
    """Rows between two looks for new trials,"""
    old_refresh_rows: int = 1000
    """and in calm times at nodes that are not young."""
    young_rows: int = 10_000
    """Rows up to which a node is young."""
    trial_rows: int = 1000
    """Rows after which a trial that has gained nothing is dropped,"""
    barred_rows: int = 2000
    """and barred for so many."""
    inner_trials: int = 1
    """Splits that are tried in the place of a split, at a time."""
    least_distance: float = 0.03
    """Of a feature's range between two of its thresholds on a path."""
    side_rows: int = 20
    """Rows on either side that a trial needs to be chosen."""

    # Trying other models
    curve_pieces: int = 4
    """Pieces of the curve that takes the place of a feature's line,"""
    most_levels: int = 16
    """values of a feature that may all be knots of it at once: they may be codes,"""
    most_bends: int = 64
    """and pieces of all curves together."""
    most_codes: int = 64
    """Values of a feature that may all be knots of it when curves that won race with finer ones."""
    short_memory: float = 1 / 3
    """Of the usual memory: what a model may have instead, if that loses less."""
    unbend_rows: int = 5000
    """Rows over which a curve must have earned enough to stay, and another memory must win."""
    renew_rows: float = 200
    """Rows of a leaf after which its second model starts again from the first, unless it leads,"""
    renewed_doubt: float = 3
    """the nats by which the second is doubted,"""
    renewed_rest: float = 1
    """and those that it must be behind, besides, to look at some rows only in calm times."""
    most_bars: int = 5
    """After each trial of a model that failed, the next waits twice as long, so many times."""

    # Sparse features
    sparse_step: float = 0.5
    """Adagrad's step for inputs without a column; it is 1 for those with one."""
    first_look_rows: int = 200
    """Rows of the stream after which features may get a column for the first time,"""
    look_rows: int = 10_000
    """and between two such looks, at most: they double until then."""
    prominent_share: float = 0.02
    """Of the gradients' energy that a feature must have to be split upon,"""
    prominent_rows: float = 20
    """rows that must have held it,"""
    most_prominent: int = 16
    """and how many there may be,"""
    most_columns: int = 100
    """but for those that most rows hold: so many of these,"""
    most_wide_columns: int = 256
    """or so many of a wide table. They are learnt together, which costs their square."""

    # What a change must prove
    nats_per_parameter: float = 0.1
    """What each free parameter of a model adds to -log(epsilon)."""
    split_price: float = 0.001
    """What each split must earn, in nats per row of the stream."""
    prune_share: float = 0.25
    """Of what a split must prove: a branch that has lost more than this goes."""
    link_factor: float = 4
    """The noise floor must prove so many times what a split must."""

    # What is spared in calm times
    rest_factor: float = 16
    """A node whose branch has gained so many times what a split must prove may rest,"""
    rest_least: float = 0.5
    """as long as it gains at least this share of it lately;"""
    rest_share: int = 4
    """then it looks at one row in so many,"""
    trials_rest: bool = False
    """and, if this is set, its trials and its grid at none."""
    trial_rest_rows: float = 200
    """A trial of more rows that does not earn looks at one in so many, too,"""
    model_rest_rows: float = 200
    """another model on trial likewise,"""
    grid_rest_rows: float = 2000
    """and the grid of a node with more."""
    costly_columns: int = 128
    """Rows of more columns are costly: then all of these always rest, the grid as trials do,"""
    costly_trials: int = 1
    """so many splits are tried at a time, with one more for each that earns,"""
    costly_grid_bytes: int = 1_500_000
    """and a grid takes so much memory."""
    block_rows: int = 64
    """Rows that come one at a time are learnt by their leaf's model at once, and by all else in
    blocks of so many. Decisions are made between blocks,"""
    wait_bytes: float = 131_072
    """where the models are larger than this: those of small trees stay in the cache anyway."""
    recent_speed: int = 16
    """What is called recent fades so many times as fast as the evidence."""
    alarm_factor: float = 1.2
    """Times are not calm when the recent loss is so many times that of the long run,"""
    alarm_nats: float = 0
    """and so many nats per row more,"""
    restless_share: float = 0.5
    """for this share of the evidence window."""

    # The simple models
    input_limit: float = 1.5
    """Inputs are z-scores, halved, and at most this: three deviations."""
    rows_per_input: float = 20
    """Newton remembers at least so many rows per input."""
    passes: int = 3
    """Passes of Adagrad over the rows of a step,"""
    step: float = 1
    """and its step."""
    clear_lead: float = 2
    """Of Newton over Adagrad, in nats: then one pass over a single row is enough."""
    most_sure: float = 20
    """Nats that a row may cost a model that is mostly wrong before it becomes less sure."""
    variance: float = 1
    """Of a weight before anything is learnt."""
    sureness_window: float = 500
    """Rows that say how sure a model may be of itself; 0: as sure as it is."""
    mean_curvature: bool = True
    """Whether Newton divides by the mean curvature over the labels, not by half of their sum."""
    floor_first: float = 0.1
    """The noise floor of either label at the start,"""
    floor_first_rows: float = 1000
    """the rows that it counts for then,"""
    floor_rows: float = 10_000
    """and the rows that it remembers later;"""
    floor_least: float = 1e-6
    """its least value,"""
    floor_most: float = 0.5
    """and the most of both labels."""
    spread_rows: float = 500
    """Rows that the spread of a number around its prediction remembers;"""
    spread_first_rows: float = 5
    """those for which it counts at the start,"""
    spread_least: float = 1e-8
    """and its least value, as a share of the target's variance."""


@dataclass(frozen=True, slots=True)
class PaperConstants:
    """The paper's setting."""

    step_rows: int = 2**24
    """The whole batch is a step, as far as a row's number has 24 bits in the kernels."""
    sample_rows: int = 10_000
    """Rows of the stream between samples for the history, at first."""
    least_weight: float = 1e-100
    """Of a side of a candidate: with less, (6) may have no room in a float."""
    waiting_rows: int = 32
    """Of a node in the kernels, whose gradients are not yet in the candidates' sums."""


@dataclass(frozen=True, slots=True)
class WatchConstants:
    """How drifts are noticed, in both settings; `docs/monitor.md` has what it brings."""

    alarms_per_million: float = 1
    """False alarms per million rows, on average, of a stream in which nothing changes."""
    keep_one_in: int = 16
    """Of so many rows one is kept, with what it cost when it came;"""
    check_rows: int = 1000
    """every so many rows of the stream,"""
    checks_later: int = 8
    """those kept so many checks ago are asked what they would cost now,"""
    most_earlier: int = 100
    """and the mean excess is compared with the last so many, at most half of all so far."""
    least_excess: float = 0.02
    """Nats per row: above it, and above all others, an excess counts for more than its rank."""
    most_excess: float = 4
    """Nats that a row may have of it, either way: what one costs whose label got 2 %."""
    most_values: int = 100_000
    """Of all rows kept."""

    @property
    def level(self) -> float:
        """What the evidence must reach: the checks between two false alarms, on average."""
        return 1e6 / self.alarms_per_million / self.check_rows


WATCH = WatchConstants()
MEASURED = MeasuredConstants()
# Without bends (max_bends=0) the tree is what it was before there were any, to the bit.
STRAIGHT = replace(
    MEASURED,
    first_rows=300,
    least_distance=0,
    split_price=0,
    short_memory=1,
    renew_rows=math.inf,
    variance=10,
    sureness_window=0,
    mean_curvature=False,
    trial_rest_rows=math.inf,
    grid_rest_rows=math.inf,
    costly_columns=2**31 - 1,
    block_rows=1,
)


# Numbers: a loss may be negative, so that no factor of it means anything, and a model is as sure as
# its spread says.
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


MEASURED_NUMBERS = replace(_for_numbers(MEASURED), rest_factor=4, trials_rest=True)
STRAIGHT_NUMBERS = _for_numbers(STRAIGHT)
PAPER = PaperConstants()


@dataclass(frozen=True, slots=True)
class PairConstants:
    """What a tree of a forest that sees pairs has of what costs most."""

    pairs_per_feature: int
    """Hinges per number among the features,"""
    most_pairs: int
    """and at most."""
    max_depth: float
    """At most; inf: what the forest was given,"""
    max_bends: float
    """and likewise."""
    memory: float
    """Of that of a tree alone."""


GROWING = PairConstants(
    pairs_per_feature=4, most_pairs=40, max_depth=math.inf, max_bends=math.inf, memory=1
)
# One model that nothing is tried beside: it costs little, and follows what moves.
FLAT = PairConstants(pairs_per_feature=8, most_pairs=80, max_depth=0, max_bends=0, memory=1 / 3)


@dataclass(frozen=True, slots=True)
class ForestConstants:
    """A forest. Rows are those of the stream."""

    # Hinges of pairs, which all trees but the first have as further inputs
    turns: tuple[PairConstants, ...] = (FLAT, GROWING)
    """What these trees are, by turns: the weights say which are to be believed."""
    most_deviations: float = 3
    """Of a number from its mean, as a hinge sees it."""
    scale_rows: int = 32
    """Rows after which the numbers are first scaled for them; then whenever there are twice as
    many."""

    # What these trees have less of than a tree alone: more costs much, and brings little
    trials: int = 1
    """Splits that are tried at a time, at most,"""
    inner_trials: int = 0
    """and in the place of one that is there: it must be pruned first;"""
    bins: int = 8
    """bins of each number in grids, at most;"""
    passes: int = 1
    """and passes of Adagrad over the rows of a step."""

    # What the trees say together
    window: float = 2000
    """Rows that the weights of the trees remember."""
    prior: float = 100
    """Rows, about, that equal weights are worth."""
    most_step: float = 0.2
    """Of a weight, in a step."""
    mixed: float = 0.01
    """Share of the uniform distribution in what a tree says: none may veto all others."""
    clear: float = 3
    """Typical errors of a number beyond which a larger one tells no more."""

    # Looking at the trees
    look_rows: int = 1000
    """Rows between two looks,"""
    most_looks: int = 200
    """of which so many are remembered; then every other one."""
    youth_rows: int = 5000
    """Rows after which a tree must be of use."""


FOREST = ForestConstants()
FOREST_NUMBERS = replace(FOREST, turns=(GROWING,))  # numbers are seldom sums of hinges alone


@dataclass(frozen=True, slots=True)
class ImbalanceConstants:
    """Weights of labels, and thresholds. Rows are those of the stream."""

    window: float = 20_000
    """Rows that both remember in the paper's setting, which has no window of its own."""

    # Weights
    most: float = 6
    """What a row of any label weighs at most: the ratios count, larger weights let noise look like
    evidence, and models take no more than eight steps for a row,"""
    least_mean: float = 0.02
    """and what a row weighs on average at least: what weighs little is learnt slowly."""
    prior_rows: float = 5
    """Rows that each label is counted for before it is seen."""

    # Thresholds
    bins: int = 256
    """Log-odds that are told apart,"""
    step: float = 0.125
    """and how far they are from each other."""
    least_scale: float = 1e-6
    """To what histograms fade as a whole, before their bins do."""
    least_rows: float = 10
    """Rows of either label before anything is chosen."""
    recall_step: float = 0.05
    """How far a positive row moves the recall that is aimed at, until what is asked holds,"""
    precision_step: float = 0.01
    """and a row that was predicted to be positive the precision."""
    prior_wrong: float = 5
    """Rows that each threshold is believed to have got wrong before: a few hits may be luck."""


IMBALANCE = ImbalanceConstants()
