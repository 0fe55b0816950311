"""Simple models of copies are merged into what one that met all rows would be."""

from dataclasses import replace

import numpy as np
import pytest

from driftree.learn.constants import MEASURED
from driftree.scale.blends import Blend, CopyBlend, Learning, merge_blends, merge_faded

N_COLUMNS = 3
FOR_EVER = Learning(1e15, N_COLUMNS, MEASURED)
START = Blend(
    np.array([[0.5, -1.0, 0.0]]),
    np.array([[4.0, 9.0, 1.0]]),
    np.array([[0.3, 0.1, -0.2]]),
    np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.0], [0.0, 0.0, 0.6]]),
    stride=8,
)


def told(base, rows, targets):
    """What Newton knows after rows of a parabola: a regression, whose prior is what it knew."""
    before = np.linalg.inv(base.covariance)
    precision = before + rows.T @ rows
    pull = base.newton @ before + targets @ rows
    covariance = np.linalg.inv(precision)
    return base._replace(newton=pull @ covariance, covariance=covariance)


def moved(adagrad=(0.0, 0.0, 0.0), gained=(0.0, 0.0, 0.0), n_rows=10):
    """A copy whose Adagrad has moved, and whose rows have told that much about each input."""
    precision = np.linalg.inv(START.covariance) + np.diag(gained)
    blend = START._replace(adagrad=START.adagrad + adagrad, covariance=np.linalg.inv(precision))
    return CopyBlend(blend, n_rows)


def test_newton_knows_what_it_would_know_of_all_rows():
    rng = np.random.default_rng(1)
    rows, targets = rng.normal(size=(60, N_COLUMNS)), rng.normal(size=(1, 60))
    parts = [slice(0, 10), slice(10, 40), slice(40, 60)]
    copies = [
        CopyBlend(told(START, rows[part], targets[:, part]), part.stop - part.start)
        for part in parts
    ]
    merged, together = merge_blends(copies, START, FOR_EVER, 1.0), told(START, rows, targets)
    np.testing.assert_allclose(merged.newton, together.newton, rtol=1e-9)
    np.testing.assert_allclose(merged.covariance, together.covariance, rtol=1e-9)


def test_more_labels_do_not_overshoot():
    """Each copy has corrected the same error: together they may not do so eight times."""
    many = START._replace(
        **{name: np.repeat(getattr(START, name), 7, axis=0) for name in START._fields[:3]}
    )
    step = np.zeros((7, N_COLUMNS))
    step[0, 0] = 1.0
    precision = np.linalg.inv(START.covariance) + np.diag([1.0, 0.0, 0.0])
    copies = [
        CopyBlend(many._replace(newton=many.newton + step, covariance=np.linalg.inv(precision)), 10)
    ] * 8
    by_half = FOR_EVER._replace(constants=replace(MEASURED, mean_curvature=False))
    far, less_far = (
        (merge_blends(copies, many, learning, 1.0).newton - many.newton)[0, 0]
        for learning in (by_half, FOR_EVER)
    )
    assert 1.0 < less_far < 0.8 * far


@pytest.mark.parametrize("n_copies", [1, 2, 8])
def test_adagrad_adds_moves_where_little_is_known_and_averages_them_where_much_is(n_copies):
    copies = [moved((0.1, 0.1, 0.0), (0.0, 1e6, 0.0))] * n_copies
    merged = merge_blends(copies, START, FOR_EVER, 1.0)
    expected = START.adagrad + np.array([0.1 * n_copies, 0.1, 0.0])
    np.testing.assert_allclose(merged.adagrad, expected, rtol=1e-4)
    np.testing.assert_allclose(merged.squares, START.squares)


def test_a_copy_without_rows_counts_for_nothing():
    copies = [moved((0.3, 0.0, 0.0), (1.0, 1.0, 1.0)), *[CopyBlend(START, 0)] * 3]
    merged = merge_blends(copies, START, FOR_EVER, 1.0)
    for name in ("adagrad", "squares", "newton", "covariance"):
        np.testing.assert_allclose(getattr(merged, name), getattr(copies[0].blend, name), atol=1e-9)


def test_what_each_copy_limits_is_no_information():
    unknown = START._replace(covariance=100.0 * np.eye(N_COLUMNS))
    limited = unknown.limited(FOR_EVER, 1.0, 0.0)
    np.testing.assert_allclose(limited.covariance, np.eye(N_COLUMNS))
    merged = merge_blends([CopyBlend(limited, 5)] * 8, unknown, FOR_EVER, 1.0)
    np.testing.assert_allclose(merged.covariance, np.eye(N_COLUMNS), rtol=1e-9)
    assert START.limited(FOR_EVER, 1.0, 0.0) is None
    assert START.limited(Learning(10.0, N_COLUMNS, MEASURED), 1.0, 200.0) is not None


def test_the_past_fades_by_the_rows_of_all():
    keep = FOR_EVER._replace(window=1000.0).keep(N_COLUMNS, 1.0)
    before = np.linalg.inv(START.covariance)
    faded = CopyBlend(START._replace(covariance=START.covariance / keep**50), 50)
    merged = merge_blends([faded] * 4, START, FOR_EVER._replace(window=1000.0), 1.0)
    np.testing.assert_allclose(np.linalg.inv(merged.covariance), keep**200 * before, rtol=1e-9)
    np.testing.assert_allclose(merged.newton, START.newton, rtol=1e-9)


def test_faded_sums_are_those_of_rows_one_after_the_other():
    keep, base, gain = 0.98, 3.0, 0.5

    def after(n_rows, value=base):
        for _ in range(n_rows):
            value = keep * value + gain
        return value

    rows = [10, 25, 40]
    found = merge_faded(base, [after(n) for n in rows], rows, keep)
    assert found == pytest.approx(after(sum(rows)))
    assert merge_faded(base, [base] * 2, [0, 0], keep) == base
