"""Learning, predicting, saving, copying, news and nonsense in any order: the twin is no different.

Every step is done to a model and to its twin. Only the model is put away and taken out again, and
copied; only the model is sent what is refused. Both must hold the same bits after every step.
"""

import copy

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from bad_input import CASES
from doors import DOORS, ERRORS, LEARN, TABLE
from quick import of_setting
from states import MODELS, check_probabilities, infinite_arrays, reborn, state_hash

LARGEST = np.finfo(float).max
NUMBERS = st.one_of(
    st.floats(-3, 3),
    st.integers(-2, 2),
    st.sampled_from([5e-324, 1e-300, 1e155, -1e300, LARGEST, -LARGEST, 2**60]),
    st.sampled_from([None, float("nan")]),
)
COLORS = st.sampled_from(["red", "green", "blue", None])
WEIGHTS = st.sampled_from([1.0, 1.0, 1.0, 0.0, 0.5, 3.0, 1e-12, 1e12])
REFUSED = [
    (line, door)
    for line, outcomes in TABLE.items()
    for door, outcome in outcomes.items()
    if outcome in ERRORS and "10,000" not in line
]
OWN = {
    "measured": of_setting("measured", epsilon=1.0),
    "paper": of_setting("paper", epsilon=1.0),
    "FIMT-DD": {"grace_period": 10, "delta": 1.0, "drift_threshold": 0.5, "max_nodes": 7},
}


class Life(RuleBasedStateMachine):
    """A model and its twin."""

    name: str

    def __init__(self):
        super().__init__()
        make = MODELS["measured" if self.name == "paper" else self.name]
        self.model, self.twin = make(**OWN[self.name]), make(**OWN[self.name])
        self.features, self.labels = ["x0", "x1"], ["no", "yes"]

    def both(self, call):
        """Do the same to both: it must succeed with both, or with none and without a trace."""
        before, errors = state_hash(self.model), []
        for model in (self.model, self.twin):
            try:
                call(model)
            except ValueError as error:
                errors.append(str(error))
                assert state_hash(model) == before
        assert not errors or (errors[0] == errors[-1] and len(errors) == 2)

    def draw_rows(self, data, n):
        names = data.draw(st.lists(st.sampled_from(self.features), unique=True))
        columns = {name: data.draw(st.lists(NUMBERS, min_size=n, max_size=n)) for name in names}
        if data.draw(st.booleans()):
            columns["color"] = data.draw(st.lists(COLORS, min_size=n, max_size=n))
        return columns

    # ------------------------------------------------------------------ learning
    @rule(data=st.data(), weight=WEIGHTS)
    def learn_one(self, data, weight):
        row = {name: cells[0] for name, cells in self.draw_rows(data, 1).items()}
        label = data.draw(st.sampled_from(self.labels))
        self.both(lambda model: model.learn_one(row, label, weight))

    @rule(seed=st.integers(0, 99), n=st.integers(1, 40))
    def learn_ones(self, seed, n):
        rng = np.random.default_rng(seed)
        for x, y in rng.normal(size=(n, 2)).tolist():
            for model in (self.model, self.twin):
                model.learn_one({"x0": x, "x1": y}, self.labels[(x > 0) ^ (y > 0)])

    @rule(data=st.data(), n=st.integers(0, 5))
    def learn_many(self, data, n):
        columns = self.draw_rows(data, n)
        n = n if columns else 0
        y = data.draw(st.lists(st.sampled_from(self.labels), min_size=n, max_size=n))
        weights = data.draw(st.none() | st.lists(WEIGHTS, min_size=n, max_size=n))
        self.both(lambda model: model.learn_many(columns, y, weights))

    @rule(
        seed=st.integers(0, 99), n=st.integers(1, 60), size=st.sampled_from([1, 1, 1e155, 1e-300])
    )
    def partial_fit(self, seed, n, size):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 2))
        y = np.array(self.labels, dtype=object)[((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)]
        self.both(lambda model: model.partial_fit(X * size, y))  # refused if no feature is x0, x1

    # ------------------------------------------------------------------ news
    @rule()
    def new_feature(self):
        self.features.append(f"n{len(self.features)}")

    @rule(label=st.sampled_from(["maybe", 3, ("a", "tuple"), True]))
    def new_class(self, label):
        if label not in self.labels:
            self.labels.append(label)

    # ------------------------------------------------------------------ nonsense
    @rule(case=st.sampled_from(REFUSED), data=st.data())
    def bad_call(self, case, data):
        line, door = case
        sent = data.draw(st.sampled_from(CASES[line].sent))
        before = state_hash(self.model)
        try:
            DOORS[door](self.model, sent)
        except (TypeError, ValueError):
            assert state_hash(self.model) == before
            return
        if door in LEARN:  # refused only by who has learnt other things
            DOORS[door](self.twin, sent)
            for label in self.model.classes_.tolist():
                if label not in self.labels:
                    self.labels.append(label)

    # ------------------------------------------------------------------ away and back
    @rule()
    def save_and_load(self):
        self.model = reborn(self.model)

    @rule(way=st.sampled_from(["copy", "deepcopy", "clone"]))
    def copy(self, way):
        if way == "clone":
            self.model = self.model.clone(include_attributes=True)
        else:
            self.model = getattr(copy, way)(self.model)

    @rule()
    def clone(self):
        fresh = self.model.clone()
        assert fresh._tree is None
        assert fresh.get_params() == self.model.get_params()

    # ------------------------------------------------------------------ predicting
    @rule(data=st.data())
    def predict(self, data):
        columns = self.draw_rows(data, 3)
        row = {name: cells[0] for name, cells in columns.items()}
        one, other = (model.predict_proba_one(row) for model in (self.model, self.twin))
        assert one == other
        assert self.model.predict_one(row) == self.twin.predict_one(row)
        if self.model._tree is None:
            return
        check_probabilities([*one.values()])
        many = self.model.predict_proba_many(columns)
        if columns:
            assert [proba[0] for proba in many.values()] == [*one.values()]
            check_probabilities(np.array([*many.values()]).T)

    @invariant()
    def the_twin_knows_the_same(self):
        assert state_hash(self.model) == state_hash(self.twin)

    @invariant()
    def all_is_finite(self):
        if self.model._tree is not None:
            assert infinite_arrays(self.model) == []
            assert self.model.n_nodes_ <= self.model.max_nodes


@pytest.mark.filterwarnings("ignore:the rows hold no feature")
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("quick_pace")
def test_any_order_of_calls(name):
    machine = type("Life", (Life,), {"name": name})
    profile = settings(
        max_examples=settings().max_examples // 4,
        stateful_step_count=30,
        phases=[Phase.explicit, Phase.generate],
    )
    run_state_machine_as_test(machine, settings=profile)
