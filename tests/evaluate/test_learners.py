"""Learners by name: those of River give the same results in every process."""

import os
import pickle
import subprocess
import sys

import pytest

from driftree.evaluate import LEARNERS, make_learner

PREDICT_THEN_LEARN = """
import hashlib, random, sys
from driftree.evaluate import make_learner
for name in sys.argv[1:]:
    draw, model, said = random.Random(1), make_learner(name), []
    for _ in range(1200):
        color, size = draw.choice(["red", "green", "blue", "grey", "pink"]), draw.choice("xyz")
        label = ["no", "yes", "perhaps"][(color in ("green", "blue")) + (size == "x")]
        x = {"color": color, "size": size}
        said.append(repr((model.predict_one(x), sorted(model.predict_proba_one(x).items()))))
        model.learn_one(x, label)
    print(name, hashlib.sha256("".join(said).encode()).hexdigest())
"""
RIVERS = [name for name, choice in LEARNERS.items() if not choice.is_ours]


def test_rivers_learners_do_not_depend_on_the_hash_seed():
    told = [
        subprocess.run(
            [sys.executable, "-c", PREDICT_THEN_LEARN, *RIVERS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2", "3")
    ]
    assert len(told[0]) == 2 * len(RIVERS)
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("name", RIVERS)
def test_a_pickled_learner_learns_on_alike(name):
    model = make_learner(name)
    for i in range(300):
        model.learn_one({"color": "red" if i % 3 else "blue", "age": i % 7}, "yn"[i % 2])
    other = pickle.loads(pickle.dumps(model))
    for i in range(300):
        x = {"color": "red" if i % 3 else "blue", "age": i % 7}
        assert model.predict_proba_one(x) == other.predict_proba_one(x)
        for one in (model, other):
            one.learn_one(x, "ynz"[i % 3])
