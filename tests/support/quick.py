"""The tree and its oracle at a quick pace, streams for them, and both trees node by node.

A test module asks for the pace with ``pytestmark = pytest.mark.usefixtures("quick_pace")``.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st

from driftree import DynamicModelTreeClassifier
from driftree.learn import constants
from driftree.learn import parameters as parameters_module
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.tree import Tree
from naive.tree import NaiveTree

SETTINGS = ("measured", "paper")
N_ROWS = 360


class QuickNaiveTree(NaiveTree):
    """The oracle with small numbers; it notes when a choice is too close to call.

    The kernels sum gradients in single precision: where scores differ by less than that, both
    choices are right. Of one feature, the same split in other words ties, and has an order; of two
    features, the same split is not the same sum. Either choice is right, too, where as many rows
    go left as right, and missing values are to go with the majority.
    """

    CHUNK, WARM_UP, REFRESH, TRIAL_AGE, BAR = 20, 15, 10, 40, 60
    MIN_SIDE, FLOOR_GATE = 4, 1
    YOUTH, OLD_REFRESH, REST = 60, 30, 2
    ALARM, RESTLESS = 1.2, 0.1
    PIECES, CODES, BENDS, UNBEND, MOST_BARS, SURENESS = 3, 5, 6, 50, 2, 60
    PRICE = 0.003
    TRIAL_REST, GRID_REST = 15, 70
    RENEW, DOUBT, RENEWED_REST, HARM = 20, 0.5, 0.5, 1.0
    SIDE_VARIANCE = 0.03
    too_close, best_scores = False, ()

    def proposals(self, node):
        found = super().proposals(node)
        best, firsts, shares = {}, {}, {}
        for score, split, slot, (n_left, n_right) in found:
            scores = best.setdefault(split.feature, [])
            follows = not scores and not split.equality and not node.grid[split.feature].count[-1]
            self.too_close |= bool(follows and abs(n_left - n_right) < 1e-9 * n_left)
            scores.append(score)
            known = shares.setdefault(split.feature, [])  # of equals either may be the first:
            mirrored = any(near(score, first) and near(n_right, n) for first, n in known)
            self.too_close |= mirrored  # gradients of the two sides are rounded otherwise
            known.append((score, n_left))
            if node.barred.get((split.feature, slot), 0) <= node.rows:
                firsts.setdefault(split.feature, score)
        for scores in best.values():
            self.too_close |= any(1e-9 < step < 1e-5 for step in steps(scores))
        self.too_close |= any(step < 1e-5 for step in steps(sorted(firsts.values())[::-1]))
        return found

    def adopt_window(self, kind, node, window, threshold, before, second):
        gain = window.gains(self.gain_step).sum()
        gains = [own.gains(self.gain_step).sum() for own in node.store.values()]
        self.too_close |= sum(near(gain, other) for other in gains) > 1  # sums round otherwise
        super().adopt_window(kind, node, window, threshold, before, second)

    def bend_scores(self, node, j):
        scores = list(super().bend_scores(node, j))
        self.best_scores = [*self.best_scores, max(scores, default=0.0)]
        return scores

    def ranked(self, node, features):
        self.best_scores = []
        found = super().ranked(node, features)
        scores = sorted((score for score in self.best_scores if score > 0), reverse=True)
        self.too_close |= any(step < 1e-3 for step in steps(scores))
        return found


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def steps(scores):
    """By what share each score is below the one before."""
    return [1 - low / max(high, 1e-300) for high, low in pairwise(scores)]


QUICK = {
    "first_rows": QuickNaiveTree.WARM_UP,
    "refresh_rows": QuickNaiveTree.REFRESH,
    "old_refresh_rows": QuickNaiveTree.OLD_REFRESH,
    "young_rows": QuickNaiveTree.YOUTH,
    "rest_factor": QuickNaiveTree.REST,
    "alarm_factor": QuickNaiveTree.ALARM,
    "restless_share": QuickNaiveTree.RESTLESS,
    "trial_rows": QuickNaiveTree.TRIAL_AGE,
    "barred_rows": QuickNaiveTree.BAR,
    "side_rows": QuickNaiveTree.MIN_SIDE,
    "step_rows": QuickNaiveTree.CHUNK,
    "link_factor": QuickNaiveTree.FLOOR_GATE,
    "curve_pieces": QuickNaiveTree.PIECES,
    "most_levels": QuickNaiveTree.CODES,
    "most_bends": QuickNaiveTree.BENDS,
    "unbend_rows": QuickNaiveTree.UNBEND,
    "most_bars": QuickNaiveTree.MOST_BARS,
}


def set_pace(patch, **numbers):
    """Give the learner the numbers of `QuickNaiveTree`, with bends and without."""
    quick = QuickNaiveTree
    bent = replace(
        constants.MEASURED,
        sureness_window=quick.SURENESS,
        split_price=quick.PRICE,
        trial_rest_rows=quick.TRIAL_REST,
        model_rest_rows=quick.TRIAL_REST,
        grid_rest_rows=quick.GRID_REST,
        renew_rows=quick.RENEW,
        renewed_doubt=quick.DOUBT,
        renewed_rest=quick.RENEWED_REST,
        renewed_harm=quick.HARM,
        side_variance=quick.SIDE_VARIANCE,
    )
    for name, setting in {"MEASURED": bent, "STRAIGHT": constants.STRAIGHT}.items():
        patch.setattr(constants, name, replace(setting, **QUICK | numbers))


PARAMETERS = {
    "epsilon": 0.05,
    "model_window": 60,
    "bins": 8,
    "max_bends": 8,
    "evidence_window": 200,
    "max_nodes": 9,
    "max_depth": 3,
    "gain_step": 0.5,
}
# From careful to rash: the rash ones replace and prune all the time.
moods = st.sampled_from([{}, {"epsilon": 1.0}, {"epsilon": 1.0, "gain_step": 2.0}])


def of_setting(setting, **parameters):
    """`PARAMETERS` and these, without those that belong to the other setting."""
    names = {"categorical", *parameters_module.SETTINGS[setting].__dataclass_fields__}
    parameters = PARAMETERS | parameters | {"setting": setting}
    return {name: value for name, value in parameters.items() if name in names}


def examples(n):
    """So many examples, as many more as the profile says; a seed is not worth shrinking."""
    phases = [Phase.explicit, Phase.generate]
    return settings(max_examples=max(1, n * settings().max_examples // 100), phases=phases)


# ---------------------------------------------------------------------- streams
streams = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "n_features": st.integers(2, 4),
        "n_classes": st.sampled_from([2, 2, 3]),
        "missing": st.booleans(),
        "categorical": st.booleans(),
        "codes": st.booleans(),
        "noise": st.sampled_from([0.0, 0.1, 0.4]),
    }
)


def make_stream(
    seed, n_features, n_classes, *, missing=False, categorical=False, codes=False, noise=0.0
):
    """A stream whose concept changes twice: an exclusive or, a line, and a line elsewhere.

    With `categorical`, feature 1 has four levels, coded in order of appearance; with `codes`,
    feature 0 has only seven values.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, n_features)) * 10.0 ** rng.integers(-2, 3, size=n_features)
    signs = (X > 0).astype(int)
    concepts = [signs[:, 0] ^ signs[:, 1], signs[:, -1], signs[:, 0] + signs[:, 1]]
    first = rng.integers(3)
    thirds = np.split(np.arange(N_ROWS), 3)
    y = np.concatenate([concepts[(first + i) % 3][rows] for i, rows in enumerate(thirds)])
    y = np.where(rng.random(N_ROWS) < noise, rng.integers(0, n_classes, N_ROWS), y) % n_classes
    if codes:
        X[:, 0] = np.clip(np.round(2 * X[:, 0] / X[:, 0].std()), -3, 3)
    if categorical:
        X[:, 1] = np.clip(X[:, 1] / X[:, 1].std() + 2, 0, 3).astype(int)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    if categorical:
        X[:, 1] = number_levels(X[:, 1])
    return X, y


def number_levels(values):
    """Number the levels in order of appearance; NaN stays."""
    codes = {}
    return [v if np.isnan(v) else codes.setdefault(v, len(codes)) for v in values.tolist()]


def make_weights(seed, n_rows):
    """Weights in quarters, whose sums are exact."""
    return np.random.default_rng(seed).integers(1, 5, n_rows) / 4


def make_pair(setting, stream, **parameters):
    """A learner and its oracle for a stream."""
    parameters = of_setting(setting, **parameters)
    parameters["categorical"] = (1,) if stream["categorical"] else ()
    oracle = QuickNaiveTree(stream["n_features"], stream["n_classes"], **parameters)
    return DynamicModelTreeClassifier(**parameters), oracle


def make_tree(n_classes=2, **parameters):
    source = DynamicModelTreeClassifier(**parameters)
    return Tree(parameters_module.read_parameters(source), n_classes)


def make_engine(n_features, n_classes=2, **parameters):
    engine = make_tree(n_classes, **parameters).engine
    for _ in range(n_features):
        engine.add_feature(False, True)
    return engine


def pieces(n_rows, size):
    return [slice(start, start + size) for start in range(0, n_rows, size)]


# ---------------------------------------------------------------------- both trees, node by node
def engine_of(model):
    return model._tree.engine


def alter(tree, changes):
    """Change numbers of a tree by the names of its arrays: {(name, place): number}."""
    arrays = tree.engine.arrays()
    for (name, place), number in changes.items():
        arrays[name][place] = number
    tree.engine.restore(arrays)


def trials_of(engine, node):
    """The trials of a node by place."""
    return {trial.place: trial for trial in engine.trials(node)}


def part_of(engine, name, item):
    """What one item of a list has: the grid of a node, the memory of a model."""
    arrays = engine.arrays()
    lengths = arrays[f"{name}.lengths"]
    begin = lengths[:item].sum()
    return arrays[name][begin : begin + lengths[item]]


def split_of(engine, node):
    """A node's split as (feature, threshold, equality, missing_left), None at a leaf."""
    if engine.left[node] < 0:
        return None
    fields = (engine.feature, engine.threshold, engine.equality, engine.missing_left)
    return tuple(field[node].item() for field in fields)


def structure(engine, node=0):
    """The tree's splits in nested tuples."""
    split = split_of(engine, node)
    if split is None:
        return "leaf"
    return split, structure(engine, engine.left[node]), structure(engine, engine.right[node])


def node_pairs(engine, oracle):
    """(node id, oracle's node) from the root down; fails where the structures differ."""
    rest = [(0, oracle.root)]
    while rest:
        node, twin = rest.pop()
        yield node, twin
        split, own = twin.split, split_of(engine, node)
        assert (own is None) == (split is None)
        if split:
            others = split.feature, split.equality, split.missing_left
            assert (own[0], *own[2:]) == others
            np.testing.assert_allclose(own[1], split.value, rtol=1e-9, atol=1e-12)
            rest += [(int(engine.right[node]), twin.right), (int(engine.left[node]), twin.left)]


def columns_in_order(engine, oracle):
    """The engine's input columns in the order of the oracle's."""
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    places = {
        "intercept": lambda: 0,
        "numeric": lambda j: engine.value_column[j],
        "missing": lambda j: engine.missing_column[j],
        "level": lambda j, code: levels[j, code],
    }
    return np.array([places[kind](*which) for kind, *which in oracle.columns])
