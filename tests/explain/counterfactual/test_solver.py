"""The cheapest way to meet linear demands, against trying every choice with scipy's solvers."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from driftree.explain.counterfactual.solver import (
    Bounds,
    Choice,
    Filling,
    LeafTask,
    project,
    search,
)


def make_task(seed):
    """A few numbers, demands and choices at any scale; about half cannot be done."""
    rng = np.random.default_rng(seed)
    n_numbers, n_demands, n_choices = rng.integers([1, 1, 0], [6, 5, 4])
    low = np.where(rng.random(n_numbers) < 0.2, -np.inf, rng.uniform(-3, 1, n_numbers))
    width = rng.uniform(0, 3, n_numbers)
    high = np.where(rng.random(n_numbers) < 0.2, np.inf, np.maximum(low, -5) + width)
    slopes = rng.normal(size=(n_demands, n_numbers)) * (rng.random((n_demands, n_numbers)) < 0.8)
    scale = 10.0 ** rng.integers(-3, 4)
    choices = [
        Choice(rng.normal(size=(rng.integers(1, 4), n_demands)) * scale, bool(rng.random() < 0.8))
        for _ in range(n_choices)
    ]
    need = rng.normal(size=n_demands) * 2 * scale
    return LeafTask(low, high, slopes * scale, need, choices, base_cost=float(rng.integers(2)))


def left_over(task, picks):
    pairs = zip(task.choices, picks, strict=True)
    chosen = (choice.gains[pick] for choice, pick in pairs if pick >= 0)
    return task.need - sum(chosen, np.zeros(len(task.need)))


def every_pick(task):
    return itertools.product(
        *(range(-1 if choice.may_stay else 0, len(choice.gains)) for choice in task.choices)
    )


def confirm_for(task):
    """Accept what holds, and price it; where it does not hold at all, the solver is wrong."""

    def confirm(shifts, picks):
        need = left_over(task, picks)
        assert ((shifts >= task.low) & (shifts <= task.high)).all()
        missing = (need - task.slopes @ shifts) / (1e-3 + np.abs(task.need).max())
        assert missing.max() < 1e-7
        return float(shifts @ shifts) + sum(pick >= 0 for pick in picks) + task.base_cost

    return confirm


def oracle(task):
    """Return whether the task can be done at all, and costs of it that scipy finds."""
    can_be_done, costs = False, []
    box = list(zip(task.low, task.high, strict=True))
    for picks in every_pick(task):
        need = left_over(task, picks)
        size = np.abs(task.slopes).max() or 1.0
        start = linprog(
            np.zeros(len(task.low)), A_ub=-task.slopes / size, b_ub=-need / size, bounds=box
        )
        if start.status == 2:
            continue
        can_be_done = True
        found = minimize(
            lambda shifts: shifts @ shifts,
            start.x,
            jac=lambda shifts: 2 * shifts,
            bounds=box,
            constraints={
                "type": "ineq",
                "fun": lambda shifts, need=need, size=size: (task.slopes @ shifts - need) / size,
                "jac": lambda shifts, size=size: task.slopes / size,
            },
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if found.success:
            costs.append(found.fun + sum(pick >= 0 for pick in picks) + task.base_cost)
    return can_be_done, costs


@pytest.mark.parametrize("seeds", [range(0, 60), range(60, 120)])
def test_search_finds_the_cheapest_way_or_that_there_is_none(seeds):
    n_done = n_compared = 0
    for seed in seeds:
        task = make_task(seed)
        cost, unsearched, _ = search(Bounds(task), math.inf, confirm_for(task), max_nodes=5000)
        can_be_done, costs = oracle(task)
        assert unsearched == math.inf
        assert (cost < math.inf) == can_be_done
        assert all(cost <= other * (1 + 1e-6) + 1e-6 for other in costs)
        n_done += can_be_done
        n_compared += any(other == pytest.approx(cost, rel=1e-5, abs=1e-5) for other in costs)
    assert 15 < n_done < 45
    assert n_compared > 0.8 * n_done  # SLSQP gives up at times


def test_what_was_not_looked_at_is_told_by_its_bound():
    rng = np.random.default_rng(3)
    slopes, box = rng.normal(size=(4, 10)) * 0.5, np.full(10, 1.0)
    need = rng.uniform(0, 6, size=4)
    choices = [Choice(rng.normal(size=(4, 4)) * 0.5) for _ in range(10)]
    task = LeafTask(-box, box, slopes, need, choices)
    confirm = confirm_for(task)
    least, unsearched, n_nodes = search(Bounds(task), math.inf, confirm, max_nodes=1000)
    assert unsearched == math.inf
    assert n_nodes < 500  # of the 5 ** 10 ways: surrogates make the bounds sharp
    cost, unsearched, n_nodes = search(Bounds(task), math.inf, confirm, max_nodes=1)
    assert n_nodes <= 11
    assert unsearched <= least <= cost


def test_a_limit_that_cannot_be_beaten_stays():
    task = make_task(3)
    least = search(Bounds(task), math.inf, confirm_for(task), max_nodes=5000)[0]
    assert least < math.inf
    assert search(Bounds(task), least / 2, confirm_for(task), max_nodes=5000)[0] == least / 2


def test_bounds_are_lower_bounds_and_exact_for_one_demand():
    for seed in range(60):
        task = make_task(seed)
        bounds = Bounds(task)
        cost = search(Bounds(task), math.inf, confirm_for(task), max_nodes=5000)[0]
        assert bounds.least <= cost * (1 + 1e-9) + 1e-9
        if len(task.need) == 1:
            assert bounds.least == pytest.approx(cost)


def test_margins_grow_until_the_model_agrees():
    task = LeafTask(np.array([-9.0]), np.array([9.0]), np.array([[1.0]]), np.array([2.0]))
    seen = []

    def confirm(shifts, picks):
        seen.append(float(shifts[0]))
        return float(shifts[0] ** 2) if shifts[0] > 2 + 1e-10 else math.inf

    cost, unsearched, _ = search(Bounds(task), math.inf, confirm, max_nodes=5)
    assert seen == sorted(seen)
    assert 2 + 1e-10 < seen[-1] < 2 + 1e-8
    assert cost == seen[-1] ** 2
    assert unsearched == math.inf
    assert search(Bounds(task), math.inf, lambda *_: math.inf, max_nodes=5)[:2] == (math.inf, 4.0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_filling_and_projecting_agree_for_one_demand(scale):
    rng = np.random.default_rng(1)
    for _ in range(50):
        slopes = rng.normal(size=6) * scale
        task = LeafTask(
            rng.uniform(-2, 0.5, 6), rng.uniform(0.5, 2, 6), slopes[None], np.array([scale])
        )
        filled = Filling(slopes, task.low, task.high).shifts(scale)
        projected, _ = project(task, task.need, size=1.0)
        assert filled == pytest.approx(projected, abs=1e-9)
