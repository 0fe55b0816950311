"""Concepts of the synthetic streams: pure functions from features to labels, kept in tables.

`SEA_THRESHOLDS`, `AGRAWAL_RULES`, `STAGGER_RULES` and `SINE_RULES` hold one concept per index; a
function's number is its index. `LED_DIGITS` holds the segments of one digit per row.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]

SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)

AGRAWAL_FEATURES = (
    "salary",
    "commission",
    "age",
    "education",
    "car",
    "zipcode",
    "house_value",
    "house_years",
    "loan",
)
SALARY, COMMISSION, AGE, EDUCATION, CAR, ZIPCODE, HOUSE_VALUE, HOUSE_YEARS, LOAN = range(9)


def _between(values: Features, low: float, high: float) -> Mask:
    return (low <= values) & (values <= high)


def _by_age(X: Features, below_40: Mask, below_60: Mask, older: Mask) -> Mask:
    return np.where(X[:, AGE] < 40, below_40, np.where(X[:, AGE] < 60, below_60, older))


def _by_income(X: Features, income: Features) -> Mask:
    return _by_age(
        X,
        _between(income, 50_000, 100_000),
        _between(income, 75_000, 125_000),
        _between(income, 25_000, 75_000),
    )


def _by_education(X: Features) -> Mask:
    education = X[:, EDUCATION]
    return _by_age(X, education <= 1, _between(education, 1, 3), education >= 2)


def _by_salary_and_education(X: Features) -> Mask:
    low = _between(X[:, SALARY], 25_000, 75_000)
    middle = _between(X[:, SALARY], 50_000, 100_000)
    high = _between(X[:, SALARY], 75_000, 125_000)
    unusual = _by_age(X, low, high, low)
    usual = _by_education(X) ^ (X[:, AGE] < 40)  # below 40 the little educated are unusual
    return np.where(usual, middle, unusual)


def _by_salary_and_loan(X: Features) -> Mask:
    # Some of these bounds on the salary were meant for the loan. All libraries have inherited them
    # from MOA, so they are kept here.
    salary, loan = X[:, SALARY], X[:, LOAN]
    below_40 = np.where(
        _between(salary, 50_000, 100_000),
        _between(loan, 100_000, 300_000),
        _between(salary, 200_000, 400_000),
    )
    below_60 = _between(salary, 300_000, 500_000)
    older = np.where(
        _between(salary, 25_000, 75_000),
        _between(loan, 300_000, 500_000),
        _between(loan, 75_000, 300_000),
    )
    return _by_age(X, below_40, below_60, older)


def _earnings(X: Features) -> Features:
    return 2 * (X[:, SALARY] + X[:, COMMISSION]) / 3


def _equity(X: Features) -> Features:
    return X[:, HOUSE_VALUE] * np.maximum(X[:, HOUSE_YEARS] - 20, 0) / 10


AGRAWAL_RULES: tuple[Callable[[Features], Mask], ...] = (
    lambda X: (X[:, AGE] < 40) | (X[:, AGE] >= 60),
    lambda X: _by_income(X, X[:, SALARY]),
    _by_education,
    _by_salary_and_education,
    _by_salary_and_loan,
    lambda X: _by_income(X, X[:, SALARY] + X[:, COMMISSION]),
    lambda X: _earnings(X) - X[:, LOAN] / 5 - 20_000 <= 1,
    lambda X: _earnings(X) - 5_000 * X[:, EDUCATION] - 20_000 <= 1,
    lambda X: _earnings(X) - 5_000 * X[:, EDUCATION] - X[:, LOAN] / 5 - 10_000 <= 1,
    lambda X: _earnings(X) - 5_000 * X[:, EDUCATION] + _equity(X) / 5 - 10_000 <= 1,
)

STAGGER_FEATURES = ("size", "color", "shape")
SIZE, COLOR, SHAPE = range(3)
STAGGER_RULES: tuple[Callable[[Features], Mask], ...] = (
    lambda X: (X[:, SIZE] == 0) & (X[:, COLOR] == 0),
    lambda X: (X[:, COLOR] == 2) | (X[:, SHAPE] == 0),
    lambda X: X[:, SIZE] >= 1,
)


def _below_sine(X: Features) -> Mask:
    return X[:, 0] < np.sin(X[:, 1])


def _below_waves(X: Features) -> Mask:
    return X[:, 0] < 0.5 + 0.3 * np.sin(3 * np.pi * X[:, 1])


SINE_RULES: tuple[Callable[[Features], Mask], ...] = (
    _below_sine,
    lambda X: ~_below_sine(X),
    _below_waves,
    lambda X: ~_below_waves(X),
)

# Segments from top to bottom, left before right.
LED_DIGITS = np.array(
    [
        [1, 1, 1, 0, 1, 1, 1],
        [0, 0, 1, 0, 0, 1, 0],
        [1, 0, 1, 1, 1, 0, 1],
        [1, 0, 1, 1, 0, 1, 1],
        [0, 1, 1, 1, 0, 1, 0],
        [1, 1, 0, 1, 0, 1, 1],
        [1, 1, 0, 1, 1, 1, 1],
        [1, 0, 1, 0, 0, 1, 0],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 1, 1],
    ],
    dtype=np.float64,
)


def exceed_sea(X: Features, function: int) -> Mask:
    """Return which rows are above a concept's threshold."""
    above: Mask = X[:, 0] + X[:, 1] > SEA_THRESHOLDS[function]
    return above


def label_sea(X: Features, function: int) -> Labels:
    """Label rows by a concept of SEA: 1 where ``X[:, 0] + X[:, 1]`` is above its threshold.

    Parameters
    ----------
    X : array of shape (n_rows, 3)
        Features.
    function : int
        Concept, 0 to 3; the thresholds are 8, 9, 7 and 9.5.

    Returns
    -------
    array of int64
        Labels without noise.

    Examples
    --------
    >>> label_sea(np.array([[4.0, 4.5, 0.0], [3.0, 4.5, 9.0]]), function=0)
    array([1, 0])
    """
    check_function(function, len(SEA_THRESHOLDS))
    return exceed_sea(X, function).astype(np.int64)


def label_agrawal(X: Features, function: int) -> Labels:
    """Label rows by one of Agrawal's ten loan rules.

    Parameters
    ----------
    X : array of shape (n_rows, 9)
        Features in the order of `AGRAWAL_FEATURES`.
    function : int
        Concept, 0 to 9.

    Returns
    -------
    array of int64
        Labels, as River defines them. scikit-multiflow and MOA swap 0 and 1 in functions 0 to 5.

    Examples
    --------
    >>> rows = np.zeros((3, 9))
    >>> rows[:, AGRAWAL_FEATURES.index("age")] = [30, 50, 70]
    >>> label_agrawal(rows, function=0)
    array([1, 0, 1])
    """
    check_function(function, len(AGRAWAL_RULES))
    return AGRAWAL_RULES[function](X).astype(np.int64)


def label_stagger(X: Features, function: int) -> Labels:
    """Label rows by a concept of STAGGER.

    Parameters
    ----------
    X : array of shape (n_rows, 3)
        Features in the order of `STAGGER_FEATURES`: size (0 small, 1 medium, 2 large), color
        (0 red, 1 blue, 2 green) and shape (0 circle, 1 square, 2 triangle).
    function : int
        Concept, 0 to 2: small and red; green or a circle; medium or large.

    Returns
    -------
    array of int64
        Labels without noise.

    Examples
    --------
    >>> label_stagger(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]), function=0)
    array([1, 0])
    """
    check_function(function, len(STAGGER_RULES))
    return STAGGER_RULES[function](X).astype(np.int64)


def label_sine(X: Features, function: int) -> Labels:
    """Label rows by a concept of Sine: whether the first feature is below a curve over the second.

    Parameters
    ----------
    X : array of shape (n_rows, 2) or wider
        Features; only the first two count.
    function : int
        Concept, 0 to 3: below ``sin(v)``; not below it; below ``0.5 + 0.3 sin(3 pi v)``; not below
        it.

    Returns
    -------
    array of int64
        Labels without noise.

    Examples
    --------
    >>> label_sine(np.array([[0.2, 0.5], [0.9, 0.5]]), function=0)
    array([1, 0])
    """
    check_function(function, len(SINE_RULES))
    return SINE_RULES[function](X).astype(np.int64)


def label_led(X: Features) -> Labels:
    """Read the digit on a display of seven segments.

    Parameters
    ----------
    X : array of shape (n_rows, 7) or wider
        Segments, 0 or 1, from top to bottom and left before right; further columns are ignored.

    Returns
    -------
    array of int64
        The digit, 0 to 9, that differs in the fewest segments; in a tie, the smallest.

    Examples
    --------
    >>> label_led(np.array([[0.0, 0, 1, 0, 0, 1, 0], [1.0, 1, 1, 1, 1, 1, 1]]))
    array([1, 8])
    """
    n_segments = LED_DIGITS.shape[1]
    # For zeros and ones the number of differences is sum(x) + sum(digit) - 2 sum(x * digit).
    differences: Features = LED_DIGITS.sum(axis=1) - 2 * X[:, :n_segments] @ LED_DIGITS.T
    digits: Labels = differences.argmin(axis=1).astype(np.int64)
    return digits


def check_function(function: int, n_functions: int) -> None:
    """Raise an error unless `function` is the number of a concept."""
    if function not in range(n_functions):
        raise ValueError(f"function must be from 0 to {n_functions - 1}, but is {function}")
