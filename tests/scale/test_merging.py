"""Copies that went on from one model are merged by what each has gained."""

import copy
import itertools

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.learn.storage import models as files
from driftree.scale import merge


def rows_of(n_rows, n_classes=2, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    score = X @ [1.0, 2.0, -1.0, 0.0] + rng.normal(size=n_rows)
    return X, np.digitize(score, [-1.0, 1.0]) if n_classes == 3 else (score > 0).astype(int)


def copies_of(n_copies, n_classes=2, **options):
    """A model, copies that go on from it, one that learns all their rows, and rows to test them."""
    X, y = rows_of(3000, n_classes)
    base = DynamicModelTreeClassifier(max_bends=0, **options).partial_fit(X[:600], y[:600])
    copies = [
        copy.deepcopy(base).partial_fit(X[600 + i : 1400 : n_copies], y[600 + i : 1400 : n_copies])
        for i in range(n_copies)
    ]
    together = copy.deepcopy(base).partial_fit(X[600:1400], y[600:1400])
    return base, copies, together, (X[1400:], y[1400:])


def loss_of(model, rows):
    X, y = rows
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_copies", [2, 4])
def test_merged_copies_are_nearly_what_was_trained_together(n_copies, n_classes):
    base, copies, together, rows = copies_of(n_copies, n_classes)
    merged = merge(copies, base)
    worst = max(loss_of(one, rows) for one in copies)
    assert loss_of(merged, rows) < worst
    assert loss_of(merged, rows) < loss_of(together, rows) + 0.005
    X, y = rows
    merged.partial_fit(X, y)  # and it goes on learning
    assert merged.n_leaves_ == 1


def test_a_single_copy_stays_what_it_is():
    base, copies, _, (X, _) = copies_of(2)
    for start in (base, None):
        merged = merge(copies[:1], start)
        np.testing.assert_allclose(merged.predict_proba(X), copies[0].predict_proba(X), rtol=1e-9)


def test_the_order_does_not_matter():
    base, copies, _, (X, _) = copies_of(3)
    said = [merge(order, base).predict_proba(X) for order in itertools.permutations(copies)]
    for other in said[1:]:
        np.testing.assert_allclose(other, said[0], rtol=1e-9)


def test_models_that_began_from_nothing_are_merged_too():
    X, y = rows_of(1600)
    copies = [
        DynamicModelTreeClassifier(max_bends=0).partial_fit(X[i:600:3], y[i:600:3], classes=[0, 1])
        for i in range(3)
    ]
    rest = X[600:], y[600:]
    merged = merge(copies)
    assert loss_of(merged, rest) < np.mean([loss_of(one, rest) for one in copies])


def test_copies_are_not_changed():
    base, copies, *_ = copies_of(2)
    before = [files.to_bytes(model) for model in (base, *copies)]
    merge(copies, base)
    assert [files.to_bytes(model) for model in (base, *copies)] == before


@pytest.mark.parametrize("n_columns", [(0, 1), (0, 4), (4, 0)])
def test_copies_that_have_met_other_missing_values_are_refused(n_columns):
    """Their models have an input for each feature that may be missing, in the order of arrival."""
    base, copies, _, (X, y) = copies_of(2)
    for model, column in zip(copies, n_columns, strict=True):
        gaps = X[:5].copy()
        gaps[:, column : column + 1] = np.nan  # the last is none of the four
        model.partial_fit(gaps, y[:5])
    for start in (base, None):
        with pytest.raises(ValueError, match="differ in their inputs"):
            merge(copies, start)
    taught = copy.deepcopy(base)
    with pytest.raises(ValueError, match="differ in their inputs"):
        merge([taught.partial_fit(np.full((1, 4), np.nan), y[:1])], base)
    assert merge([copy.deepcopy(taught).partial_fit(X, y)], taught).n_rows_seen_ > len(X)


def test_what_has_no_sum_is_refused():
    base, copies, *_ = copies_of(2)
    X, y = rows_of(3000)
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])
    with pytest.raises(ValueError, match="has learnt nothing"):
        merge([DynamicModelTreeClassifier()])
    with pytest.raises(TypeError, match="only a DynamicModelTreeClassifier"):
        merge([DynamicModelTreeRegressor().partial_fit(X, X[:, 0])])
    with pytest.raises(ValueError, match="differ in their parameters"):
        merge([copies[0], DynamicModelTreeClassifier(bins=9).partial_fit(X, y)])
    with pytest.raises(ValueError, match="differ in their labels"):
        merge([copies[0], DynamicModelTreeClassifier(max_bends=0).partial_fit(X, 1 - y + 2)])
    xor = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)
    split = copy.deepcopy(base).partial_fit(X, xor)
    assert split.n_leaves_ > 1
    with pytest.raises(ValueError, match="different splits"):
        merge([copies[0], split], base)
