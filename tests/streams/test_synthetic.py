"""Synthetic streams: rules equal River's, rows depend on the seed alone, the paper returns."""

import numpy as np
import pytest
from river.datasets import synth

from driftree import streams
from driftree.streams.concepts import AGRAWAL_RULES, SEA_THRESHOLDS
from driftree.streams.synthetic import MovingPlane

STREAMS = {
    "sea": (streams.sea, {}, 3),
    "agrawal": (streams.agrawal, {"function": 4, "perturbation": 0.1}, 9),
    "drifting_agrawal": (streams.drifting_agrawal, {"functions": (0, 5), "width": 100}, 9),
    "hyperplane": (streams.hyperplane, {"n_features": 7, "n_drifting": 3, "magnitude": 0.1}, 7),
    "led": (streams.led, {"noise": 0.1, "n_irrelevant": 17, "n_swapped": 4}, 24),
    "random_rbf": (streams.random_rbf, {"n_features": 5, "n_classes": 3, "speed": 0.01}, 5),
    "stagger": (streams.stagger, {"function": 1, "noise": 0.1}, 3),
    "sine": (streams.sine, {"function": 2, "noise": 0.1, "n_irrelevant": 2}, 4),
}


def collect(batches):
    X, y = zip(*batches, strict=True)
    return np.concatenate(X), np.concatenate(y)


def some_applicants():
    """Valid rows, and rows beyond the usual ranges that reach every branch of the rules."""
    X, _ = collect(streams.agrawal(1000))
    X[::2, 0] *= 3
    return X


@pytest.mark.parametrize("function", range(len(SEA_THRESHOLDS)))
def test_sea_labels_equal_river(function):
    rows = [(list(x.values()), y) for x, y in synth.SEA(function, seed=3).take(500)]
    X, y = map(np.array, zip(*rows, strict=True))
    np.testing.assert_array_equal(streams.label_sea(X, function), y)


@pytest.mark.parametrize("function", range(len(AGRAWAL_RULES)))
def test_agrawal_labels_equal_river(function):
    X = some_applicants()
    rule = synth.Agrawal(function)._classification_functions[function]
    labels = streams.label_agrawal(X, function)
    assert labels.tolist() == [rule(*row) for row in X.tolist()]
    assert set(labels) == {0, 1}


@pytest.mark.parametrize("name", STREAMS)
def test_rows_depend_on_the_seed_alone(name):
    draw, parameters, n_features = STREAMS[name]
    X, y = collect(draw(500, seed=5, **parameters))
    assert (X.shape, X.dtype) == ((500, n_features), np.float64)
    assert (y.shape, y.dtype) == ((500,), np.int64)
    for batch_rows in (1, 64, 500, 1000):
        X_again, y_again = collect(draw(500, seed=5, batch_rows=batch_rows, **parameters))
        np.testing.assert_array_equal(X, X_again)
        np.testing.assert_array_equal(y, y_again)
    X_other, _ = collect(draw(500, seed=6, **parameters))
    assert not np.array_equal(X, X_other)


@pytest.mark.parametrize("name", STREAMS)
def test_batches_have_the_size_asked_for(name):
    draw, parameters, _ = STREAMS[name]
    assert [len(y) for _, y in draw(25, batch_rows=10, **parameters)] == [10, 10, 5]
    assert list(draw(0, **parameters)) == []


def test_noise_swaps_its_share_of_labels():
    X, y = collect(streams.sea(20_000, noise=0.2, function=2))
    assert np.mean(y != streams.label_sea(X, 2)) == pytest.approx(0.2, abs=0.01)
    X, y = collect(streams.hyperplane(20_000, noise=0.0, n_drifting=0))
    _, noisy = collect(streams.hyperplane(20_000, noise=0.3, n_drifting=0))
    assert np.mean(y != noisy) == pytest.approx(0.3, abs=0.01)


def test_applicants_stay_in_their_ranges():
    X, _ = collect(streams.agrawal(5000, perturbation=0.5))
    feature = dict(zip(streams.AGRAWAL_FEATURES, X.T, strict=True))
    lows = X.min(axis=0).tolist()
    highs = X.max(axis=0).tolist()
    assert lows == [20_000, 0, 20, 0, 1, 0, 50_000, 1, 0]
    assert highs == [150_000, 75_000, 80, 4, 20, 8, 1_350_000, 30, 500_000]
    commission = feature["commission"]
    assert np.all((commission == 0) | (commission >= 10_000))
    for name in ("age", "education", "car", "zipcode", "house_years"):
        np.testing.assert_array_equal(feature[name], feature[name].round())


def test_abrupt_drift_changes_the_rule_at_equal_distances():
    functions = (0, 7, 2)
    X, y = collect(streams.drifting_agrawal(3000, functions=functions))
    for k, function in enumerate(functions):
        rows = slice(1000 * k, 1000 * (k + 1))
        np.testing.assert_array_equal(y[rows], streams.label_agrawal(X[rows], function))


def test_gradual_drift_mixes_both_rules():
    X, y = collect(streams.drifting_agrawal(20_000, functions=(0, 2), width=4000))
    old, new = streams.label_agrawal(X, 0), streams.label_agrawal(X, 2)
    assert np.all((y == old) | (y == new))
    differ = old != new
    share = [np.mean((y == new)[rows][differ[rows]]) for rows in np.split(np.arange(20_000), 10)]
    assert share[0] == 0
    assert share[-1] == 1
    assert np.all(np.diff(share) > -0.02)
    assert (share[4] + share[5]) / 2 == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: streams.sea(1, function=4), "function must be from 0 to 3, but is 4"),
        (lambda: streams.agrawal(1, function=10), "function must be from 0 to 9, but is 10"),
        (lambda: streams.drifting_agrawal(1, functions=(0, -1)), "from 0 to 9, but is -1"),
        (lambda: streams.label_sea(np.zeros((1, 3)), -1), "from 0 to 3, but is -1"),
        (lambda: streams.sea(1, noise=1.5), "noise must be from 0 to 1, but is 1.5"),
        (lambda: streams.hyperplane(1, n_features=3, n_drifting=4), "from 0 to n_features=3"),
    ],
)
def test_errors_name_the_range_before_the_first_batch(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------ the paper's streams


def min_max(X):
    X = np.asarray(X)
    return (X - X.min(axis=0)) / np.ptp(X, axis=0)


def test_paper_sea_begins_as_in_the_documentation_of_scikit_multiflow():
    documented = [
        [3.75057129, 6.4030462, 9.50016579],
        [7.76929659, 8.32745763, 0.5480574],
        [8.85351458, 7.22346511, 0.02556032],
        [3.43419851, 0.94759888, 3.94642589],
        [7.3670683, 9.55806869, 8.20609371],
    ]
    X, _ = streams.paper_sea(5)
    np.testing.assert_allclose(X, min_max(documented), atol=1e-7)


def test_paper_sea_drifts_abruptly_and_has_nine_percent_noise():
    X, y = streams.paper_sea()
    assert (X.shape, X.min(), X.max()) == ((1_000_000, 3), 0, 1)
    for k, function in enumerate((0, 1, 2, 3, 0)):
        rows = slice(200_000 * k + 10, 200_000 * (k + 1) - 10)
        agree = y[rows] == streams.label_sea(10 * X[rows], function)
        assert agree.mean() == pytest.approx(0.91, abs=0.002)
    assert int(y.sum()) == 625_168


def choose_by_loop(n_rows, drifts, generators):
    """Walk through nested drifting streams row by row."""
    states = [np.random.RandomState(0) for _ in drifts]
    times = [0] * len(drifts)
    for _ in range(n_rows):
        level = 0
        while level < len(drifts):
            position, width = drifts[level]
            times[level] += 1
            chance = 1 / (1 + np.exp(-4.0 * (times[level] - position) / width))
            if states[level].rand() > chance:
                break
            level += 1
        yield next(generators[level])


def applicants_by_loop(function):
    state = np.random.RandomState(112)

    def shift(value, low, high, spread):
        value += spread * (2 * (state.rand() - 0.5)) * 0.1
        return low if value < low else high if value > high else value

    while True:
        salary = 20_000 + 130_000 * state.rand()
        commission = 10_000 + 75_000 * state.rand() if salary < 75_000 else 0
        age, education, car, zipcode = (state.randint(n) for n in (61, 5, 20, 9))
        house_value = (9 - zipcode) * 100_000 * (0.5 + state.rand())
        house_years = 1 + state.randint(30)
        loan = state.rand() * 500_000
        row = [salary, commission, 20 + age, education, car, zipcode, house_value]
        row += [house_years, loan]
        label = 1 - streams.label_agrawal(np.array([row]), function)[0]
        row[0] = shift(row[0], 20_000, 150_000, 130_000)
        if commission:
            row[1] = shift(row[1], 10_000, 75_000, 65_000)
        row[2] = np.round(shift(row[2], 20, 80, 60))
        row[6] = shift(row[6], (9 - zipcode) * 100_000, 0, 135_000)
        row[7] = np.round(shift(row[7], 1, 30, 29))
        row[8] = shift(row[8], 0, 500_000, 500_000)
        yield row, label


def test_paper_agrawal_equals_a_loop():
    drifts = [(100_000, 100_000), (100_000, 200_000), (300_000, 100_000)]
    generators = [applicants_by_loop(function) for function in range(4)]
    rows, labels = zip(*choose_by_loop(3000, drifts, generators), strict=True)
    X, y = streams.paper_agrawal(3000)
    np.testing.assert_array_equal(y, labels)
    np.testing.assert_allclose(X, min_max(rows), atol=1e-12)


def test_paper_hyperplane_equals_a_loop():
    state = np.random.RandomState(112)
    weights, steps = state.rand(50), [0.5] * 25
    rows, labels = [], []
    for _ in range(400):
        row = [state.rand() for _ in range(50)]
        label = sum(w * x for w, x in zip(weights, row, strict=True)) >= np.sum(weights) * 0.5
        labels.append(int(label) ^ (0.01 + state.rand() <= 0.1))
        rows.append(row)
        for j in range(25):
            weights[j] += steps[j]
            if 0.01 + state.rand() <= 0.1:
                steps[j] *= -1
    X, y = streams.paper_hyperplane(400)
    np.testing.assert_array_equal(y, labels)
    np.testing.assert_allclose(X, min_max(rows), atol=1e-12)


def test_a_prefix_holds_the_same_rows():
    for paper_stream in (streams.paper_sea, streams.paper_agrawal, streams.paper_hyperplane):
        X, y = paper_stream(400)
        X_short, y_short = paper_stream(100)
        np.testing.assert_array_equal(y_short, y[:100])
        np.testing.assert_allclose(X_short, min_max(X[:100]), atol=1e-12)


@pytest.mark.parametrize("magnitude", [0.0, 0.1])
def test_the_hyperplane_labels_as_rivers(magnitude):
    theirs = synth.Hyperplane(seed=1, n_drift_features=3, mag_change=magnitude, noise_percentage=0)
    rows = iter(theirs)
    next(rows)
    labels = []
    for _ in range(500):
        plane = MovingPlane(np.array(theirs._weights), n_drifting=0, magnitude=0.0)
        x, label = next(rows)
        (ours,) = plane.label(np.array([list(x.values())]), np.zeros((1, 0), dtype=bool))
        assert ours == label
        labels.append(label)
    assert 0 < sum(labels) < 500
