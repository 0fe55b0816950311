"""The cheapest way to meet demands, against trying every piece with scipy's solvers."""

import itertools
import math
import time

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from driftree.explain.counterfactual.solver import (
    Filling,
    LeafTask,
    Relaxation,
    Search,
    project,
)


def number(rng, n_pieces, n_demands):
    """Pieces (low, high, slopes, gains, cost) of a number whose curves bend, 0 where it is now."""
    knots = np.sort(rng.uniform(-3, 3, n_pieces + 1))
    if n_pieces == 1:
        knots += [-90.0 if rng.random() < 0.2 else 0, 90.0 if rng.random() < 0.2 else 0]
    slopes = rng.normal(size=(n_pieces, n_demands)) * (rng.random((n_pieces, n_demands)) < 0.8)
    gains = np.zeros((n_pieces, n_demands))
    for k in range(1, n_pieces):  # they join
        gains[k] = gains[k - 1] + (slopes[k - 1] - slopes[k]) * knots[k]
    gains -= gains[max(np.searchsorted(knots[1:-1], 0.0), 0)]
    return list(zip(knots[:-1], knots[1:], slopes, gains, np.zeros(n_pieces), strict=True))


def choice(gains, may_stay=True):
    """Pieces of a category: as it is, and what it may become."""
    none = np.zeros(gains.shape[1])
    pieces = [(0.0, 0.0, none, none, 0.0)] if may_stay else []
    return pieces + [(0.0, 0.0, none, own, 1.0) for own in gains]


def task_of(items, need, base_cost=0.0, scale=1.0):
    pieces = [piece for item in items for piece in item]
    low, high, slopes, gains, costs = (np.array(part) for part in zip(*pieces, strict=True))
    return LeafTask(
        item=np.repeat(np.arange(len(items)), [len(item) for item in items]),
        low=low,
        high=high,
        slopes=slopes * scale,
        gains=gains * scale,
        costs=costs,
        need=np.asarray(need) * scale,
        base_cost=base_cost,
    )


def make_task(seed, max_pieces):
    """A few numbers, demands and choices at any scale; about half cannot be done."""
    rng = np.random.default_rng(seed)
    n_numbers, n_demands, n_choices = rng.integers([1, 1, 0], [5, 5, 3])
    items = [number(rng, rng.integers(1, max_pieces + 1), n_demands) for _ in range(n_numbers)]
    for _ in range(n_choices):
        gains = rng.normal(size=(rng.integers(1, 4), n_demands))
        items.append(choice(gains, may_stay=bool(rng.random() < 0.8)))
    need = rng.normal(size=n_demands) * 2
    return task_of(items, need, float(rng.integers(2)), 10.0 ** rng.integers(-3, 4))


def confirm_for(task):
    """Accept what holds, and price it; where it does not hold at all, the solver is wrong."""

    def confirm(shifts, pieces):
        assert (task.item[pieces] == np.arange(len(shifts))).all()
        assert ((shifts >= task.low[pieces]) & (shifts <= task.high[pieces])).all()
        brought = task.gains[pieces].sum(axis=0) + shifts @ task.slopes[pieces]
        missing = (task.need - brought) / (1e-3 + np.abs(task.need).max())
        assert missing.max() < 1e-7
        return float(shifts @ shifts) + float(task.costs[pieces].sum()) + task.base_cost

    return confirm


def oracle(task):
    """Return whether the task can be done at all, and costs of it that scipy finds."""
    can_be_done, costs = False, []
    n_items = task.item[-1] + 1
    for picked in itertools.product(*(np.flatnonzero(task.item == i) for i in range(n_items))):
        pieces = np.array(picked)
        slopes = task.slopes[pieces].T
        need = task.need - task.gains[pieces].sum(axis=0)
        size = np.abs(slopes).max() or 1.0
        box = list(zip(task.low[pieces], task.high[pieces], strict=True))
        start = linprog(np.zeros(n_items), A_ub=-slopes / size, b_ub=-need / size, bounds=box)
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
                "fun": lambda shifts, a=slopes, b=need, c=size: (a @ shifts - b) / c,
                "jac": lambda shifts, a=slopes, c=size: a / c,
            },
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if found.success:
            costs.append(found.fun + task.costs[pieces].sum() + task.base_cost)
    return can_be_done, costs


def run(task, limit=math.inf, max_nodes=5000):
    return Search(task).run(limit, confirm_for(task), max_nodes=max_nodes)


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # SciPy below 1.15
@pytest.mark.parametrize(("max_pieces", "n_seeds"), [(1, 100), (3, 50)])
def test_finds_the_cheapest_way_or_that_there_is_none(max_pieces, n_seeds):
    n_done = n_compared = 0
    for seed in range(n_seeds):
        task = make_task(seed, max_pieces)
        cost, unsearched, _ = run(task)
        can_be_done, costs = oracle(task)
        assert unsearched == math.inf
        assert (cost < math.inf) == can_be_done
        assert all(cost <= other * (1 + 1e-6) + 1e-6 for other in costs)
        n_done += can_be_done
        n_compared += any(other == pytest.approx(cost, rel=1e-5, abs=1e-5) for other in costs)
    assert 0.2 * n_seeds < n_done < 0.9 * n_seeds
    assert n_compared > 0.8 * n_done  # SLSQP gives up at times


def cheapest_by_steps(task, n_steps):
    """Return what one demand costs at least, by trying shifts in steps, item by item.

    Of those that bring about as much, the cheapest stays.
    """
    reached, costs = np.zeros(1), np.zeros(1)
    for i in range(task.item[-1] + 1):
        points, prices = [], []
        for k in np.flatnonzero(task.item == i):
            shifts = np.linspace(task.low[k], task.high[k], n_steps)
            shifts = np.append(shifts, np.clip(0.0, task.low[k], task.high[k]))
            points.append(task.gains[k, 0] + task.slopes[k, 0] * shifts)
            prices.append(task.costs[k] + shifts**2)
        sums = np.add.outer(reached, np.concatenate(points)).ravel()
        paid = np.add.outer(costs, np.concatenate(prices)).ravel()
        order = np.lexsort([paid, -sums])
        sums, paid = sums[order], paid[order]
        first = np.append(True, paid[1:] < np.minimum.accumulate(paid)[:-1])
        cells = np.floor(sums[first] / 5e-3)
        last = np.append(np.diff(cells) != 0, True)
        reached, costs = sums[first][last], paid[first][last]
    return costs[reached >= task.need[0]].min(initial=math.inf)


def test_one_demand_and_many_pieces_agree_with_fine_steps():
    n_done = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        items = [number(rng, 5, 1) for _ in range(5)] + [choice(rng.normal(size=(3, 1)))]
        task = task_of(items, [rng.uniform(0, 8)])
        cost, unsearched, n_nodes = run(task)
        assert unsearched == math.inf
        assert n_nodes < 100
        near = cheapest_by_steps(task, 30)
        assert cost <= near * (1 + 1e-9)
        if near < math.inf:
            assert math.sqrt(near) - math.sqrt(cost) < 0.1
            n_done += 1
    assert n_done > 8


@pytest.mark.parametrize("n_demands", [1, 3])
def test_many_numbers_with_bends_take_little_time(n_demands):
    rng = np.random.default_rng(1)
    tasks = [
        task_of([number(rng, 4, n_demands) for _ in range(16)], rng.uniform(2, 8, n_demands))
        for _ in range(10)
    ]
    start = time.perf_counter()
    assert all(run(task)[1] == math.inf for task in tasks)
    assert time.perf_counter() - start < 3.0  # 10 to 30 times what it takes


def test_what_was_not_looked_at_is_told_by_its_bound():
    rng = np.random.default_rng(3)
    slopes = rng.normal(size=(4, 10)) * 0.5
    need = rng.uniform(0, 6, size=4)
    items = [[(-1.0, 1.0, own, np.zeros(4), 0.0)] for own in slopes.T]
    items += [choice(rng.normal(size=(4, 4)) * 0.5) for _ in range(10)]
    task = task_of(items, need)
    least, unsearched, n_nodes = run(task, max_nodes=1000)
    assert unsearched == math.inf
    assert 1 < n_nodes < 500  # of the 5 ** 10 ways
    cost, unsearched, n_nodes = run(task, max_nodes=1)
    assert n_nodes == 1
    assert unsearched <= least <= cost


def test_a_limit_that_cannot_be_beaten_stays():
    task = make_task(3, 3)
    least = run(task)[0]
    assert least < math.inf
    assert run(task, least / 2)[0] == least / 2


@pytest.mark.parametrize("max_pieces", [1, 4])
def test_all_weights_make_lower_bounds_and_the_best_are_exact_for_what_is_convex(max_pieces):
    n_exact = 0
    for seed in range(60):
        task = make_task(seed, max_pieces)
        cost = run(task)[0]
        least = Search(task).least
        assert least <= cost * (1 + 1e-9) + 1e-9
        whole = Relaxation(task, np.arange(len(task.item)))
        rng = np.random.default_rng(seed)
        unit = float(np.abs(task.slopes).max()) or 1.0
        for size in (0.1, 1.0, 10.0):
            weights = rng.exponential(size=len(task.need)) * size / unit
            assert whole.at(weights).value <= cost * (1 + 1e-9) + 1e-9
        if len(np.unique(task.item)) == len(task.item) and cost < math.inf:
            assert least == pytest.approx(cost, rel=1e-6)
            n_exact += 1
    assert max_pieces > 1 or n_exact > 5


def test_margins_grow_until_the_model_agrees():
    task = task_of([[(-9.0, 9.0, np.array([1.0]), np.zeros(1), 0.0)]], [2.0])
    seen = []

    def confirm(shifts, pieces):
        seen.append(float(shifts[0]))
        return float(shifts[0] ** 2) if shifts[0] > 2 + 1e-10 else math.inf

    cost, unsearched, _ = Search(task).run(math.inf, confirm, max_nodes=5)
    assert seen == sorted(seen)
    assert 2 + 1e-10 < seen[-1] < 2 + 1e-8
    assert cost == seen[-1] ** 2
    assert unsearched == math.inf
    cost, unsearched, _ = Search(task).run(math.inf, lambda *_: math.inf, max_nodes=5)
    assert (cost, unsearched) == (math.inf, pytest.approx(4.0))


def test_a_margin_that_the_piece_cannot_give_is_sought_in_the_next_one():
    pieces = [
        (-1.0, 1.0, np.array([1.0]), np.zeros(1), 0.0),
        (1.0, 2.0, np.array([0.5]), np.array([0.5]), 0.0),
    ]
    task = task_of([pieces], [1.0])  # right at the knot

    def confirm(shifts, pieces):
        return float(shifts[0] ** 2) if shifts[0] > 1 else math.inf

    cost, unsearched, _ = Search(task).run(math.inf, confirm, max_nodes=9)
    assert 1 < cost < 1 + 1e-8
    assert unsearched == math.inf


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_filling_and_projecting_agree_for_one_demand(scale):
    rng = np.random.default_rng(1)
    for _ in range(50):
        slopes = rng.normal(size=6) * scale
        low, high = rng.uniform(-2, 0.5, 6), rng.uniform(0.5, 2, 6)
        filled = Filling(slopes, low, high).shifts(scale)
        projected = project(slopes[None], low, high, np.array([scale]), size=1.0)
        assert filled == pytest.approx(projected, abs=1e-9)
