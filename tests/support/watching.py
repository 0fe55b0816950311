"""A program: some threads predict while one learns. Did they see whole states, and no others?

python watching.py measured|straight|paper|fimtdd N_WATCHERS

The learner takes one step at a time, and notes after each what the model says. Whatever a watcher
has been told must be among these answers.
"""

import sys
import threading

import numpy as np
import pytest

import quick
from driftree import DynamicModelTreeClassifier, FIMTDDClassifier

N_STEPS = 120
STEP_ROWS = 20
LEVELS = np.array(["a", "b", "c", "d", "e", "f"], dtype=object)
RASH = {"epsilon": 1.0, "max_nodes": 15, "gain_step": 2.0}
FIMTDD = {"grace_period": 20, "delta": 0.5, "drift_threshold": 5.0, "max_nodes": 15}
LEARNERS = {
    "measured": lambda: DynamicModelTreeClassifier(**quick.of_setting("measured", **RASH)),
    "straight": lambda: DynamicModelTreeClassifier(
        **quick.of_setting("measured", **RASH, max_bends=0)
    ),
    "paper": lambda: DynamicModelTreeClassifier(**quick.of_setting("paper", **RASH)),
    "fimtdd": lambda: FIMTDDClassifier(**FIMTDD),
}


def draw(rng, step):
    """A step's rows: the rule changes; levels, labels, missing values and features come."""
    a, b = rng.normal(size=(2, STEP_ROWS))
    c = rng.integers(0, min(2 + step // 20, len(LEVELS)), STEP_ROWS)
    rule = step // 10 % 4
    truth = ((a > 0) ^ (b > 0), a > 0, (b > 0) ^ (c == 1), rng.random(STEP_ROWS) < 0.5)[rule]
    y = truth.astype(int)
    if step % 33 == 32:
        y[0] = step  # a label that was never seen: every model moves to other memory
    columns = {"a": a, "b": b, "c": LEVELS[c]}
    if step % 13 >= 10:
        columns[f"new {step // 13}"] = rng.normal(size=STEP_ROWS)
    if step % 17 == 16:
        a[3] = np.nan
    return columns, y


def rows_of(columns):
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def probes(model):
    """Ways to ask, each with an answer that can be compared."""
    columns, _ = draw(np.random.default_rng(9), 118)
    columns |= {f"new {i}": np.linspace(-1, 1, STEP_ROWS) for i in range(9)}  # some come later
    columns = {name: cells[:4] for name, cells in columns.items()}
    row = rows_of(columns)[0]
    slow = row | {"c": ("a", "tuple")}  # which only Python can read

    def many():
        found = model.predict_proba_many(columns)
        return tuple(found), np.stack(list(found.values())).tobytes()

    return {
        "one": lambda: tuple(model.predict_proba_one(row).items()),
        "slow": lambda: tuple(model.predict_proba_one(slow).items()),
        "many": many,
        "labels": lambda: tuple(model.predict_many(columns)),
    }


def watch(ask, seen, is_over):
    while not is_over.wait(1e-4):  # or the learner would hardly get a turn at the interpreter
        for name, answer in ask.items():
            seen[name].add(answer())


def learn(model, rng, note):
    """Learn steps of every kind; `note` is called after each."""
    for step in range(N_STEPS):
        columns, y = draw(rng, step)
        if step % 3:
            model.learn_many(columns, y)
            note()
        else:
            for x, label in zip(rows_of(columns), y.tolist(), strict=True):
                model.learn_one(x, label)
                note()


def main(learner, n_watchers):
    quick.set_pace(pytest.MonkeyPatch())
    sys.setswitchinterval(1e-5)
    rng = np.random.default_rng(1)
    model = LEARNERS[learner]()
    model.learn_many(*draw(rng, 0))
    ask = probes(model)
    whole = {name: {answer()} for name, answer in ask.items()}
    seen = [{name: set() for name in ask} for _ in range(int(n_watchers))]
    is_over, errors = threading.Event(), []
    threading.excepthook = lambda failure: errors.append(failure.exc_value)
    watchers = [threading.Thread(target=watch, args=(ask, own, is_over)) for own in seen]
    for watcher in watchers:
        watcher.start()

    def note():
        for name, answer in ask.items():
            whole[name].add(answer())

    try:
        learn(model, rng, note)
    finally:
        is_over.set()
        for watcher in watchers:
            watcher.join()
    for error in errors:
        raise error
    for name, states in whole.items():
        observed = set().union(*(own[name] for own in seen))
        assert observed <= states, f"{name}: {len(observed - states)} of {len(observed)} are torn"
        assert len(observed) > 3, f"{name}: hardly anything was seen"
    print(*sorted({type(event).__name__ for event in getattr(model, "events_", [])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
