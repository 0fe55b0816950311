"""Forests: both faces' own checks, what trees share, and what they say together."""

import functools
import math
import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from river import checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from driftree import (
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    ModelFileError,
    load,
    report,
)
from driftree.explain.tree_data import tell_event
from driftree.learn import memory
from driftree.learn.constants import FOREST, GROWING
from driftree.learn.events import MemberReplaced
from driftree.learn.parameters import ForestParameters
from driftree.learn.storage import models
from driftree.serve import responses
from driftree.stored import CLASSES

MODELS = {
    "classifier": DynamicModelForestClassifier,
    "regressor": DynamicModelForestRegressor,
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
EXPECTED_FAILURES = {
    "check_estimator_tags_renamed": "River's base class owns an unrelated `_more_tags`",
}


@parametrize_with_checks(
    [make(n_trees=3) for make in MODELS.values()],
    expected_failed_checks=lambda model: EXPECTED_FAILURES,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@every_model
def test_rivers_own_checks(make):
    model = make(n_trees=3)
    assert model._unit_test_skips() == {"check_learn_many_matches_learn_one"}
    checks.check_estimator(model)


# ---------------------------------------------------------------------- what is learnt
def draw(n_rows, *, seed=1):
    """Whether the product of two of three numbers is large; for one text less is enough."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["plain", "easy"], n_rows)
    frame.loc[rng.random(n_rows) < 0.1, "c"] = np.nan
    is_large = frame.a * frame.b > np.where(frame.kind == "easy", -0.2, 0.4)
    return frame, np.where(is_large, "yes", "no")


def learn(make, frame, y, **parameters):
    if make is DynamicModelForestRegressor:
        y = (y == "yes") * 10.0 + frame.a
    model = make(**{"n_trees": 3} | parameters)
    for start in range(0, len(frame), 100):
        model.learn_many(frame[start : start + 100], y[start : start + 100])
    return model


@every_model
def test_any_number_of_threads_learns_the_same_bits(make):
    frame, y = draw(1500)
    models = [learn(make, frame, y, n_jobs=n_jobs) for n_jobs in (1, 2, 3)]
    assert len({tuple(model.predict_many(frame)) for model in models}) == 1
    assert len({pickle.dumps(model.set_params(n_jobs=None)) for model in models}) == 1


@every_model
def test_all_trees_scale_what_they_share_as_the_first_does(make):
    frame, y = draw(900)
    first, *others = learn(make, frame, y)._tree.core.members
    for member in others:
        places = member.pairs.places
        assert len(places) == first.engine.n_features < member.engine.n_features
        for name in ("shift", "factor", "weight", "mean", "limit", "is_indicator"):
            theirs, own = (getattr(one.engine, f"scale_{name}") for one in (first, member))
            assert own[places].tobytes() == theirs.tobytes()


def test_members_see_hinges_of_scaled_pairs():
    X = np.random.default_rng(1).normal(size=(300, 3))
    model = DynamicModelForestClassifier(n_trees=2).partial_fit(X, X[:, 0] * X[:, 1] > 0)
    core, rows = model._tree.core, 10 * X[:40]
    rows[3, 1] = np.nan
    pairs = core.members[1].pairs
    shift, factor = core.scale.reshape(-1, 2).T
    z = np.nan_to_num(np.clip((rows - shift) * factor, -3, 3))
    a, b, c = pairs.slopes.T
    hinges = np.maximum(0, a * z[:, pairs.ends[:, 0]] + b * z[:, pairs.ends[:, 1]] + c)
    wanted = np.hstack([rows, hinges])[
        :, np.where(pairs.sources < 0, 2 - pairs.sources, pairs.sources)
    ]
    np.testing.assert_array_equal(core.kernel.rows_of(1, rows), wanted)


@every_model
def test_a_dict_is_a_batch_of_one_row(make):
    frame, y = draw(400)
    answers = y if make is DynamicModelForestClassifier else frame.a.tolist()
    dicts, batches = make(n_trees=3), make(n_trees=3)
    for i, row in enumerate(frame.to_dict("records")):
        dicts.learn_one(row, answers[i])
        batches.learn_many(frame[i : i + 1], answers[i : i + 1])
    np.testing.assert_array_equal(dicts.predict_many(frame), batches.predict_many(frame))
    np.testing.assert_array_equal(dicts.weights_, batches.weights_)


def test_kernels_refuse_members_that_do_not_fit():
    frame, y = draw(200)
    core = learn(DynamicModelForestClassifier, frame, y)._tree.core
    kernel, (leader, member, _) = core.kernel, core.members
    sources, ends, slopes = member.seen(leader)
    for place, *parts in (
        (3, sources, ends, slopes),
        (0, sources, ends, slopes),
        (1, sources[1:], ends, slopes),
        (1, sources, ends[1:], slopes),
        (1, sources - 100, ends, slopes),
        (1, sources, ends, slopes[1:]),
        (1, sources, -1 - ends, slopes),
    ):
        with pytest.raises((ValueError, IndexError)):
            kernel.set_member(place, member.engine, *parts)
    row = np.zeros((1, leader.engine.n_features))
    kernel.set_member(1, member.engine, sources, ends + 100, slopes)
    with pytest.raises(ValueError, match="no feature, or no scale"):
        kernel.probabilities(row)
    kernel.set_member(1, member.engine, sources, ends, slopes)
    assert kernel.probabilities(row).shape == (1, 2)
    with pytest.raises(ValueError, match="more values"):
        kernel.probabilities(np.zeros((1, 99)))
    with pytest.raises(ValueError, match="out of range"):
        kernel.learn(row, np.array([7.0]), np.ones(1), None, None, lambda place: None)


def test_the_first_tree_is_the_tree_that_would_have_learnt_alone():
    frame, y = draw(800)
    first = learn(DynamicModelForestClassifier, frame, y).trees_[0]
    alone = DynamicModelTreeClassifier()
    for start in range(0, len(frame), 100):
        alone.learn_many(frame[start : start + 100], y[start : start + 100])
    np.testing.assert_array_equal(first.predict_proba_many(frame), alone.predict_proba_many(frame))
    assert [str(event) for event in first.events_] == [str(event) for event in alone.events_]
    assert first.get_params() == alone.get_params() | {
        name: value
        for name, value in first.get_params().items()
        if alone.get_params()[name] is None
    }


def test_it_is_better_than_its_trees_where_features_act_together():
    frame, y = draw(4000)
    forest = learn(DynamicModelForestClassifier, frame[:3000], y[:3000], n_trees=5)
    single = forest.trees_[0]
    rest = frame[3000:]
    scores = [(model.predict_many(rest) == y[3000:]).mean() for model in (forest, single)]
    assert scores[0] > scores[1] + 0.005 > 0.8
    look = forest.looks_[-1]
    assert look.losses[-1] < min(look.losses[:-1])


@every_model
def test_features_levels_and_labels_come_at_any_time(make):
    rng = np.random.default_rng(1)
    is_number = make is DynamicModelForestRegressor
    model = make(n_trees=3)
    for i in range(200):
        x = {
            "a": rng.normal(),
            "b": rng.normal() if i % 7 else None,
            "kind": "uvw"[i % (1 + i // 70)],
        }
        if i > 100:
            x["late"] = rng.normal()
        y = x["a"] if is_number else ["no", "yes", "maybe"][i % (2 + i // 150)]
        model.learn_one(x, y)
        model.predict_one(x)
    first, second = (tree._tree for tree in model.trees_[:2])
    assert first.encoder.feature_names[-4:] == ["a", "kind", "b", "late"]
    assert {*first.encoder.feature_names} < {*second.encoder.feature_names}
    assert any(" & " in str(name) for name in second.encoder.feature_names)
    kind = second.encoder.names["kind"]
    assert second.encoder.levels[kind] == {"u": 0, "v": 1, "w": 2}
    assert first.engine.n_classes == second.engine.n_classes == (0 if is_number else 3)


def test_a_feature_may_be_named_like_a_pair():
    model = DynamicModelForestClassifier(n_trees=2)
    rng = np.random.default_rng(1)
    for i in range(100):
        x = {"a": rng.normal(), "b": rng.normal()}
        model.learn_one(x | ({f"a & b #{k}": 1.0 * i for k in range(9)} if i > 50 else {}), i % 2)
    assert model.trees_[1]._tree.engine.n_features > 11


def test_sparse_rows():
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(300)]
    model = DynamicModelForestClassifier(n_trees=3, max_features=250)
    for _ in range(400):
        text = set(rng.choice(words, 6))
        model.learn_one(dict.fromkeys(text, 1), bool(text & {"w3", "w5", "w7"}))
    sure, other = (model.predict_proba_one({name: 1})[True] for name in ("w3", "w33"))
    assert sure > 3 * other
    assert all(tree._tree.encoder.row_face.n_sparse <= 250 for tree in model.trees_)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.predict_proba_one({"w3": 1}) == model.predict_proba_one({"w3": 1})


@pytest.mark.parametrize("most", [12, 64])
def test_copies_and_predictions_do_not_change_which_sparse_names_stay(most):
    rng = np.random.default_rng(1)
    own = {"n_trees": 3, "absent": "zero", "max_features": most}
    forests = [DynamicModelForestClassifier(**own) for _ in range(3)]
    for i in range(200):
        row = {f"w{word}": 1.0 for word in (4 * most * rng.random(4) ** 2).astype(int)}
        forests[1].predict_one(row)
        forests[2] = pickle.loads(pickle.dumps(forests[2]))
        for forest in forests:
            forest.learn_one(row, i % 2)
        names = [
            [tree.encoder.row_face.sparse_names() for tree in forest._tree.trees]
            for forest in forests
        ]
        assert names == [names[0]] * 3
        assert all({*row} <= {*of_tree} for of_tree in names[0])
        assert not any(tree.engine.sparse_is_centred.any() for tree in forests[0]._tree.trees)
    first, *others = [forest.predict_proba_one({"w0": 1, "w1": 1}) for forest in forests]
    assert others == [first, first]


def test_trees_of_many_labels_may_have_fewer_sparse_names(monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", 100_000)
    model = DynamicModelForestClassifier(n_trees=2, absent="zero")
    for i in range(300):
        model.learn_one({f"w{i}": 1.0}, i % 20)
    bounds = [tree.engine.most_sparse for tree in model._tree.trees]
    assert bounds == [100_000 // (6 * 4 * 61)] * 2
    assert all(tree.encoder.row_face.n_sparse <= bounds[0] for tree in model._tree.trees)


def test_a_copy_of_a_forest_of_a_wide_table_learns_on_bit_by_bit():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(420, 600))
    y = X[:, :150].sum(axis=1) > 0
    model = DynamicModelForestClassifier(n_trees=2).partial_fit(X[:150], y[:150])
    copy = pickle.loads(pickle.dumps(model))
    for own in (model, copy):
        own.partial_fit(X[150:], y[150:])  # after 200 rows, some features get a column
    assert (copy.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize("size", [1, 100])
def test_a_forest_does_not_depend_on_the_unit_of_its_target(size):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 4))
    y = 2 * X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=600)
    model, other = DynamicModelForestRegressor(n_trees=3), DynamicModelForestRegressor(n_trees=3)
    for start in range(0, 600, size):
        rows = slice(start, start + size)
        model.partial_fit(X[rows], y[rows])
        other.partial_fit(X[rows], 1024 * y[rows] + 4096)
    np.testing.assert_allclose((other.predict(X) - 4096) / 1024, model.predict(X), atol=1e-6)


def set_weights(model, weights):
    arrays = model._tree.core.stack.arrays()
    arrays["weights"][:] = weights
    model._tree.core.stack.restore(arrays)


@pytest.mark.parametrize("loss", ["gaussian", "student", "poisson"])
def test_intervals_lie_around_the_prediction(loss):
    """Whatever the shares of the trees are; those of a higher level hold those of a lower one."""
    frame, _ = draw(600)
    y = np.random.default_rng(1).poisson(np.exp(frame.a * frame.b)).astype(float)
    model = DynamicModelForestRegressor(n_trees=3, loss=loss).fit(frame, y)
    for weights in ([1.0, 0.0, 0.0], [0.4, 0.3, 0.3], [3.0, -2.5, 0.5], [-0.3, 1.6, -0.3]):
        set_weights(model, weights)
        ends = [model.predict(frame)] * 2
        for level in (0.5, 0.8, 0.9, 0.99):
            within, ends = ends, model.predict_interval(frame, level).T
            assert (ends[0] <= within[0]).all()
            assert (ends[1] >= within[1]).all()
            assert not np.isnan(ends).any()
        assert loss != "poisson" or ends[0].min() == 0
    set_weights(model, [1.0, 0.0, 0.0])
    alone = model.trees_[0].predict_interval(frame)
    np.testing.assert_allclose(model.predict_interval(frame), alone, atol=1e-9)
    row = frame.to_dict("records")[0]
    np.testing.assert_array_equal(model.predict_interval_one(row), model.predict_interval(frame)[0])


def test_a_forest_of_sparse_rows_that_follows_a_number_comes_back():
    model = DynamicModelForestRegressor(n_trees=3, absent="zero")
    for i in range(100):
        model.learn_one({f"w{i % 7}": 1.0, f"v{i % 5}": 2.0}, i % 7)
    copy = pickle.loads(pickle.dumps(model))
    for i in range(50):
        row = {f"w{i % 7}": 1.0}
        assert copy.predict_one(row) == model.predict_one(row)
        copy.learn_one(row, i % 7)
        model.learn_one(row, i % 7)


def test_words_that_become_columns_keep_their_names():
    model, rng = DynamicModelForestRegressor(n_trees=3, absent="zero"), np.random.default_rng(1)
    for _ in range(300):
        row = {f"w{i}": 1.0 for i in rng.zipf(1.5, size=5) % 50}
        model.learn_one(row, 5.0 * ("w1" in row) + rng.normal())
    assert len(model._tree.encoder.names) > 3  # besides recent targets
    importance = model.feature_importance()
    assert max(importance, key=lambda name: importance[name].weight) == "w1"


# ---------------------------------------------------------------------- members
def test_files_of_before_have_one_number_of_rows_for_all_trees():
    X, y = draw(500)
    forest = DynamicModelForestClassifier(n_trees=3).partial_fit(X, y)._fitted
    known = forest.knowledge()
    rows = known["arrays"]["stack.rows"][-1]
    known["arrays"]["stack.rows"] = np.array(rows)
    forest.restore(known)
    assert forest.core.stack.rows.tolist() == 4 * [rows]


def test_files_of_before_do_not_say_which_labels_were_seen():
    frame, y = draw(500)
    forest = learn(DynamicModelForestClassifier, frame, y)._fitted
    known = forest.knowledge()
    assert known["arrays"].pop("stack.seen").tolist() == [1, 1]
    forest.restore(known)
    assert forest.core.stack.arrays()["seen"].tolist() == [1, 1]


def test_trees_of_files_of_before_go_on_growing(tmp_path, monkeypatch):
    frame, y = draw(3000)
    with monkeypatch.context() as patch:
        patch.setattr(ForestParameters, "constants", replace(FOREST, turns=(GROWING,)))
        model = learn(DynamicModelForestClassifier, frame[:1500], y[:1500])
        model.save(tmp_path / "forest.dmt")
    loaded = load(tmp_path / "forest.dmt")
    for one in (model, loaded):
        one.learn_many(frame[1500:], y[1500:])
    assert loaded._tree.core.members[1].engine.grid_is_ready(0)
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))


def test_every_other_tree_is_one_model_of_more_pairs():
    frame, y = draw(4000)
    model = learn(DynamicModelForestClassifier, frame, y, n_trees=5, epsilon=0.01)
    members = model._tree.core.members
    assert [len(member.pairs) for member in members] == [0, 24, 12, 24, 12]
    for member in members[1::2]:
        engine = member.engine
        assert engine.n_nodes == 1
        assert not engine.grid_is_ready(0)
        assert len(engine.first_rows(0)) == 0
        assert not engine.bends(0)
        assert engine.memory(0) == 1  # of its own, which is short
        assert member.tree.parameters.model_window == pytest.approx(1000 / 3)
        assert member.tree.evidence.constants.rows_per_input == pytest.approx(20 / 3)
    for member in members[2::2]:
        assert member.engine.grid_is_ready(0)
        assert member.tree.parameters.model_window == 1000
    numbers = learn(DynamicModelForestRegressor, frame[:600], y[:600], n_trees=3)
    assert [len(member.pairs) for member in numbers._tree.core.members] == [0, 12, 12]


def test_first_rows_of_a_label_say_nothing_of_the_trees():
    frame, y = draw(800)
    model = learn(DynamicModelForestClassifier, frame[:600], y[:600])
    stack, part = model._tree.core.stack, frame[600:700]
    keep = np.exp(-100 / FOREST.window)
    before = stack.arrays()
    model.learn_many(part, ["new"] * 100)
    after = stack.arrays()
    np.testing.assert_allclose(after["curvature"], keep * before["curvature"])
    pull = FOREST.prior * (1 - keep) * (before["weights"] - 1 / 3)  # of equal shares
    matrix = after["curvature"].reshape(3, 3) + FOREST.prior * np.eye(3)
    moved = before["weights"] - np.linalg.solve(matrix, pull)
    np.testing.assert_allclose(after["weights"], moved)
    assert after["losses"][0] > keep * before["losses"][0] + 100 * np.log(3)
    model.learn_many(part, ["new"] * 100)
    assert (stack.arrays()["curvature"] > 1.01 * keep * after["curvature"]).any()


def test_a_useless_member_is_replaced(tmp_path):
    frame, y = draw(600)
    model = learn(DynamicModelForestClassifier, frame, y)
    core = model._tree.core
    core.members[1].since = -100_000
    set_weights(model, [1.0, -0.5, 1.0])
    gone = core.members[1]
    core._look(core.leader.engine.n_rows)
    assert core.members[1] is not gone
    assert core.members[1].seed not in {gone.seed, *(member.seed for member in core.members[2:])}
    assert core.stack.weights[1] > 0
    now = core.look()
    assert [i for i, share in enumerate(now.agreement) if math.isnan(share)] == [1]
    assert math.isnan(now.losses[1])
    page = report(model, path=tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(r"\bnan\b", page) is None
    [event] = [event for event in model.events_ if event.kind == "member"]
    assert "tree 1 is replaced by a new one. Its weight had fallen to -0.50" in str(event)
    model.learn_many(frame[:1], y[:1])
    assert core.look().agreement[1] in (0, 1)  # only that row counts
    model.learn_many(frame, y)
    model.save(tmp_path / "model.dmt")
    for copy in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.dmt")):
        assert [str(event) for event in copy.events_] == [str(event) for event in model.events_]
    learnt = [event for event in model.events_ if event.kind != "member" and event.member == 1]
    assert all("Tree 1 (since row 600), row " in str(event) for event in learnt)


@every_model
def test_a_member_that_has_learnt_nothing_yet_is_kept_as_it_is(make):
    frame, y = draw(600)
    model = learn(make, frame, y)
    model._tree.core.renew(1, 7, 600)
    model._tree.end_call()
    copy = pickle.loads(pickle.dumps(model))
    y = y if make is DynamicModelForestClassifier else frame.b
    for one in (model, copy):
        one.learn_many(frame, y)
    assert models.to_bytes(copy) == models.to_bytes(model)


def test_a_new_member_may_see_features_that_came_lately():
    frame, y = draw(600)
    model = learn(DynamicModelForestClassifier, frame, y)
    later = frame.assign(
        **{f"late{i}": np.random.default_rng(i).normal(size=600) for i in range(9)}
    )
    model.learn_many(later[:50], y[:50])
    core = model._tree.core
    core.renew(1, core.next_number, core.leader.engine.n_rows)
    assert core.members[1].pairs.ends.max() > 4  # before, the scale had no such feature
    model.learn_many(later, y)
    assert model.predict_many(later).shape == (600,)


def test_looks_are_thinned():
    frame, y = draw(300)
    core = learn(DynamicModelForestClassifier, frame, y)._tree.core
    for _ in range(1000):
        core._look(core.leader.engine.n_rows)
    assert len(core.looks) <= 200


# ---------------------------------------------------------------------- keeping
@every_model
def test_files_and_pickles_go_on_with_the_same_bits(make, tmp_path):
    frame, y = draw(1500)
    model = learn(make, frame[:1200], y[:1200])
    model.save(tmp_path / "forest.dmt")
    copies = [load(tmp_path / "forest.dmt"), pickle.loads(pickle.dumps(model))]
    rest = frame[1200:].assign(late=1.0)
    answers = y[1200:] if make is DynamicModelForestClassifier else np.arange(300.0)
    for one in (model, *copies):
        one.learn_many(rest, answers)
    for copy in copies:
        np.testing.assert_array_equal(copy.predict_many(rest), model.predict_many(rest))
        np.testing.assert_array_equal(copy.weights_, model.weights_)
        assert copy.looks_ == model.looks_


def test_a_damaged_file_is_refused():
    frame, y = draw(200)
    contents, arrays = models.pack(learn(DynamicModelForestClassifier, frame, y))
    broken = [
        {"forest.stack.weights": np.ones(2)},
        {"forest.pairs1.ends": arrays["forest.pairs1.ends"] + 100},
        {"forest.scale": np.full_like(arrays["forest.scale"], np.nan)},
        {"forest.counts": -arrays["forest.counts"]},
        {"forest.more": np.ones(1)},
        {"tree7.more": np.ones(1)},
        {"tree1.n_classes": arrays["tree1.n_classes"] + 1},
    ]
    for change in broken:
        with pytest.raises(ModelFileError):
            models.unpack(contents, arrays | change, CLASSES)
    for name in arrays:
        renamed = {f"{name}z" if other == name else other: arrays[other] for other in arrays}
        with pytest.raises(ModelFileError):
            models.unpack(contents, renamed, CLASSES)
    learnt = contents["learnt"]
    for change in (
        {"trees": learnt["trees"][:2]},
        {"replaced": [[1, 2]]},
        {"trees": [learnt["trees"][0], *learnt["trees"][:2]]},
        {"parameters": learnt["parameters"] | {"max_depth": 3}},
    ):
        with pytest.raises(ModelFileError):
            models.unpack(contents | {"learnt": learnt | change}, arrays, CLASSES)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_trees": 0}, "n_trees must be from 1 to 50, got 0"),
        ({"n_jobs": 0}, "n_jobs must be a whole number of threads .* got 0"),
        ({"n_jobs": "two"}, "n_jobs must be a whole number of threads .* got 'two'"),
    ],
)
def test_wrong_parameters(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        DynamicModelForestClassifier(**parameters).learn_one({"a": 1}, 1)


# ---------------------------------------------------------------------- why
def test_contributions_add_up_to_the_log_odds():
    frame, y = draw(1500)
    rng = np.random.default_rng(5)
    noisy = np.where(rng.random(len(y)) < 0.3, rng.choice(["yes", "no"], len(y)), y)  # a floor
    several = np.where(frame.c > 1, "maybe", y)
    for labels in (y, noisy, several):
        model = DynamicModelForestClassifier(n_trees=3).fit(frame, labels)
        why = model.explain(frame)
        total = why.base_values + why.values.sum(axis=1)
        np.testing.assert_allclose(total, model.decision_function(frame), atol=1e-9)
        assert "a & b" in why.feature_names
        assert len(set(why.feature_names)) == len(why.feature_names)
        said = np.tensordot(why.weights, why.said, 1)
        np.testing.assert_allclose(said, model.decision_function(frame), atol=1e-9)
        one = model.explain_one(frame.iloc[3].to_dict() | {"odd": 1})
        assert one.prediction == model.predict(frame)[3]
        assert one.unknown == ("odd",)
        parts = one.contributions if one.label else one.contributions[one.prediction]
        base = one.intercept if one.label else one.intercept[one.prediction]
        row = total[3] if one.label else total[3][list(model.classes_).index(one.prediction)]
        assert base + sum(parts.values()) == pytest.approx(row)
        assert "Trees:\n    0: " in str(one)


def test_contributions_add_up_to_the_number():
    frame, _ = draw(800)
    y = (frame.a * frame.b + 3 * (frame.kind == "easy")).to_numpy()
    model = DynamicModelForestRegressor(n_trees=3).fit(frame, y)
    why = model.explain(frame)
    total = why.base_values + why.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict(frame), atol=1e-9)
    model = DynamicModelForestRegressor(n_trees=2, loss="poisson").fit(frame, np.abs(y))
    why = model.explain(frame)
    total = why.base_values + why.values.sum(axis=1)
    np.testing.assert_allclose(np.exp(total), model.predict(frame), rtol=1e-6)
    assert str(why[0]).startswith("Prediction: ")


def test_sparse_contributions_add_up():
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(50)]
    model = DynamicModelForestClassifier(n_trees=2, absent="zero")
    for _ in range(200):
        text = set(rng.choice(words, 5))
        model.learn_one(dict.fromkeys(text, 1), "w3" in text)
    why = model.explain_one({"w3": 1, "w9": 1})
    odds = model.predict_proba_one({"w3": 1, "w9": 1})
    total = why.intercept + sum(why.contributions.values())
    assert total == pytest.approx(np.log(odds[True] / odds[False]))
    assert next(iter(why.contributions)) == "w3"
    with pytest.raises(ValueError, match="no counterfactuals for sparse features"):
        model.counterfactual({"w3": 1})


def test_importance_and_history_are_of_all_trees():
    frame, y = draw(3000)
    model = learn(DynamicModelForestClassifier, frame, y, n_trees=4)
    importance = model.feature_importance()
    assert "a & b" in list(importance)[:3]
    assert {"a", "b", "c", "kind"} < {*importance}
    log = model.history()
    assert log.columns[0] == "member"
    assert len(log) == len(model.events_)
    assert log["n_rows"].is_monotonic_increasing


@pytest.mark.parametrize("loss", ["gaussian", "poisson", "quantile"])
def test_importance_of_recent_targets(loss):
    frame, _ = draw(600)
    model = DynamicModelForestRegressor(n_trees=3, loss=loss).partial_fit(frame, np.abs(frame.a))
    assert {"a", "a & b", "kind"} < {*model.feature_importance()}
    sparse = DynamicModelForestRegressor(n_trees=3, loss=loss, absent="zero")
    for i in range(200):
        sparse.learn_one({f"w{i % 7}": 1, f"w{i % 5}": 1}, float(i % 3))
    assert {"w1", "w2"} < {*sparse.feature_importance()}


def test_explanations_of_a_row_with_times_and_what_is_unknown():
    model = DynamicModelForestClassifier(n_trees=2)
    for i, time in enumerate(pd.date_range("2024-01-01", periods=300, freq="7h")):
        row = {"t": time.to_pydatetime(), "kind": ("a\nb", "c")[i % 2], "x": float(i % 9)}
        model.learn_one(row, "few\nof" if i % 9 < 4 else "many")
    x = row | {"kind": "new", "x": 2.0, "shoes": 3}
    why = model.explain_one(x)
    assert why.unknown == ("shoes",)
    assert why.row["kind"] == "new"
    assert "Prediction: few\\nof, " in str(why)
    assert str(why).endswith("Not known to the model: 'shoes'.")
    near = model.counterfactual(x, fixed=["t: days", "t: hour", "t: weekday"])
    assert model.predict_one(near.x) == near.target == "many"


def test_explanations_of_counts_are_of_logarithms():
    frame, _ = draw(600)
    model = DynamicModelForestRegressor(n_trees=2, loss="poisson")
    model.learn_many(frame, np.exp(frame.a).round())
    why = model.explain_one(frame.iloc[0].to_dict())
    total = why.intercept + sum(why.contributions.values())
    assert total == pytest.approx(math.log(why.prediction))
    assert "What makes the logarithm of the number" in str(why)


def test_explanations_tell_numbers_far_from_0_in_full():
    frame, _ = draw(600)
    model = DynamicModelForestRegressor(n_trees=2)
    frame["lon"] = -122.42 + 0.01 * frame.b
    model.learn_many(frame, 51234.5 + 1000 * frame.b)
    told = [model.explain_one(row) for row in frame[:2].to_dict("records")]
    assert str(told[0]).startswith(f"Prediction: {told[0].prediction:,.0f}")
    assert len({re.search(r"lon = (.*)", str(why))[1] for why in told}) == 2


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
def test_the_words_of_a_number_have_its_decimals(scale):
    frame, _ = draw(600)
    model = DynamicModelForestRegressor(n_trees=2, follow_target=False)
    model.learn_many(frame, scale * (5 + frame.a))
    why = model.explain_one(frame.iloc[0].to_dict())
    head, _, *ledger = str(why).replace(",", "").splitlines()
    trees = ledger.index("Trees:")
    numbers = [float(line.split()[0]) for line in ledger[: trees - 1]]
    [sums] = re.findall(r" has (\S+) this one (\S+)\.$", ledger[trees - 1])
    average, number = map(float, sums)
    near = functools.partial(pytest.approx, rel=0.001, abs=0.005 * scale)
    assert (float(head.split()[1]), number) == near((why.prediction, why.prediction))
    assert average == near(why.intercept)
    assert numbers == near(list(why.contributions.values()))
    assert [float(line.split()[3]) for line in ledger[trees + 1 :]] == near(
        [tree.said for tree in why.trees]
    )


def test_counterfactuals_hold_for_the_forest():
    frame, y = draw(2000)
    model = learn(DynamicModelForestClassifier, frame, y)
    for i in range(6):
        x = frame.iloc[i].to_dict()
        near = model.counterfactual(x)
        assert near.exists
        assert model.predict_one(near.x) == near.prediction != model.predict_one(x)
        assert near.distance > 0
        held = model.counterfactual(x, fixed=["a", "kind"], ranges={"b": (-3, 3)})
        assert not held or (held.x["a"], held.x["kind"]) == (x["a"], x["kind"])
        assert not held or -3 <= held.x["b"] <= 3
        assert not held or model.predict_one(held.x) != model.predict_one(x)
    assert str(near).startswith("It would be ")
    same = model.counterfactual(x, target=model.predict_one(x))
    assert not same.changes
    none = model.counterfactual(x, fixed=["a", "b", "c", "kind"])
    assert str(none).startswith("Nothing was found that makes it ")
    only = DynamicModelForestClassifier(n_trees=2)
    only.learn_one({"a": 1.0}, "yes")
    assert only.counterfactual({"a": 1.0}, target="yes").changes == {}
    assert str(only.counterfactual({"a": 1.0})).startswith("Nothing makes it anything else: 'yes'")
    numbers = DynamicModelForestRegressor(n_trees=2, follow_target=False)
    numbers.learn_many(frame, 5 * frame.a + frame.b)
    near = numbers.counterfactual({"a": 0.0, "b": 0.0, "c": 0.0, "kind": "easy"}, above=4)
    assert numbers.predict_one(near.x) > 4


@every_model
def test_the_best_tree_stands_alone(make):
    frame, y = draw(1500)
    model = learn(make, frame, y)
    best = model.best_tree()
    assert type(best.tree) is make._member
    assert best.tree.n_rows_seen_ == 1500
    assert 0 <= best.agreement <= 1
    assert best.loss > best.loss_of_all
    before = model.predict_many(frame).tolist()
    answers = y if make is DynamicModelForestClassifier else np.arange(1500.0)
    best.tree.learn_many(frame, answers)
    assert model.predict_many(frame).tolist() == before


# ---------------------------------------------------------------------- the rooms above
def test_agreement_is_the_share_of_rows_with_the_same_label():
    frame, y = draw(1500, seed=2)
    model = learn(DynamicModelForestClassifier, frame[:500], y[:500])
    keep = np.exp(-100 / FOREST.window)
    before, rows = model.looks_[-1].agreement[0], (1 - keep**5) / (1 - keep)
    expected = before * rows
    for start in range(500, 1500, 100):
        part = frame[start : start + 100]
        together = model.predict(part)
        same = (model.trees_[0].predict(part) == together).mean()  # the others need the forest
        expected, rows = keep * expected + same, keep * rows + 1
        model.learn_many(part, y[start : start + 100])
    assert model.looks_[-1].agreement[0] == pytest.approx(expected / rows)
    assert abs(expected / rows - before) > 0.01


def test_report_shows_agreement_and_each_tree(tmp_path):
    frame, y = draw(1200)
    model = learn(DynamicModelForestClassifier, frame.rename(columns={"a": "<b>a</b>"}), y)
    text = report(model, path=tmp_path / "new" / "forest.html").read_text(encoding="utf-8")
    assert "<h1>3 trees after 1,200 rows</h1>" in text
    assert text.count('<div class="frame">') == 3
    assert text.count("<polyline ") == 3 + 3 + 4  # the loss also of all together
    assert text.count('<div class="member"') == 3
    assert "<b>a" not in text
    assert "&lt;b&gt;a&lt;/b&gt;" in text


def test_server_answers_for_a_forest():
    frame, y = draw(600)
    model = learn(DynamicModelForestClassifier, frame, y)
    row = frame.iloc[0].to_dict()
    told = responses.explain(model, row)
    assert told["leaf"] == -1
    assert "Trees:" in told["text"]
    responses.WhyPrediction(**told)
    tree = responses.Tree(**responses.tell_tree(model))
    assert "Tree 2, weight" in tree.text
    replaced = MemberReplaced(n_rows=5, member=1, weight=-0.1, loss=0.5, loss_of_all=0.3)
    for event in [*model.events_, replaced]:
        assert responses.Event(**tell_event(event)).member in (0, 1, 2)
    assert responses.predict(model, [row])["labels"] == [model.predict_one(row)]


def test_features_that_do_not_vary_are_in_no_pair_until_they_do():
    rng = np.random.default_rng(1)
    model = DynamicModelForestRegressor(n_trees=3, follow_target=False)
    errors = []
    for i in range(600):
        still = 0.414912 if i < 300 else 0.414912 + 0.3 * rng.normal()
        x = {"a": rng.normal(), "b": rng.normal(), "still": still, "flag": 1}
        y = x["a"] + x["b"] + still
        errors.append(abs(model.predict_one(x) - y))
        model.learn_one(x, y)
        if i == 299:
            assert not any("still &" in name or "& still" in name for name in pair_names(model))
    assert any("still" in name for name in pair_names(model))
    assert not any("flag" in name for name in pair_names(model))
    assert max(errors[100:]) < 2


def pair_names(model):
    names = [name for tree in model.trees_ for name in tree._tree.encoder.display_names]
    return [name for name in names if " & " in name]
