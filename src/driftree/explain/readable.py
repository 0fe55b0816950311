"""Readable: the methods by which a tree explains itself. Implemented in the sibling modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftree.explain import changes, contributions
from driftree.explain.changes import history_of
from driftree.explain.contributions import Importance, column_importances, feature_importance
from driftree.explain.counterfactual import (
    Counterfactual,
    Counterfactuals,
    counterfactual,
    counterfactuals,
)
from driftree.explain.describe import LeafModel, inside, leaf_models
from driftree.explain.markup import notebook_html
from driftree.explain.rules import Rule, rules
from driftree.explain.tree_data import to_dict, to_dot
from driftree.learn.state import undisturbed, undisturbed_alone

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from driftree.explain.changes import Diff
    from driftree.explain.explanation import Explanation, Explanations
    from driftree.learn.columns import Batch
    from driftree.learn.drifts import Drift
    from driftree.learn.history import Structure
    from driftree.learn.tree import Tree


class Readable:
    """What a Dynamic Model Tree knows, why it changed, why it predicts; a part of the estimator."""

    _tree: Tree | None

    if TYPE_CHECKING:  # the estimator's own, further on in its bases

        def _encoded(self, X: Any) -> Batch: ...

    # ------------------------------------------------------------------ why it changed
    @undisturbed_alone
    def why(
        self, *, step: int | None = None, node: int | None = None, row: int | None = None
    ) -> str:
        """Say why the tree changed, or is as it is.

        Parameters
        ----------
        step : int, optional
            What changed at this time step; if nothing did, the last change before.
        row : int, optional
            The same by rows learnt, as events say it.
        node : int, optional
            At this node only, an id as `apply` gives it. Without a step: what the node is at
            present, what made it so, and how near it is to the next change.

        Returns
        -------
        str
            One line per change. With neither, the last change.

        See Also
        --------
        history : The same as a data frame.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> print(model.why(step=3))
        Nothing changed at step 3: no candidate had gained enough.
        >>> print(model.why())
        Row 800, step 4: all rows are split by x1 <= -0.01286. Over 398 rows a model for each ...
        >>> model.why(row=800) == model.why()
        True
        """
        return changes.why(self, step=step, node=node, row=row)

    @undisturbed
    def drifts(self, *, since: int = 0) -> list[Drift]:
        """Return the alarms so far: when the rule behind the rows changed, where, and with what.

        A few rows are kept, and 8,000 rows later the tree is asked what they would cost now. If
        that is more than what they cost when they came, what it has learnt since is not true of
        them. So even a drift is noticed that the tree follows so fast that its loss hardly rises.
        On a stream in which nothing changes there is at most one alarm per million rows on
        average. It takes less than 1 % of the time of learning.

        Parameters
        ----------
        since : int, default=0
            Only alarms raised after so many rows were learnt.

        Returns
        -------
        list of Drift
            Oldest first, at most 1,000; `str` of each is a sentence.

        See Also
        --------
        driftree.explain.loss_rises : When the loss itself rose, and in which branches.

        Notes
        -----
        The first drift can be noticed after about 20,000 rows. Rows of sparse features (text) are
        not watched. Where rows depend on the time of day, that is a drift, too.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-1, 1, size=(40_000, 2))
        >>> y = X.sum(axis=1) + rng.normal(scale=0.3, size=40_000) > 0
        >>> y[30_000:] = X[30_000:, 0] - X[30_000:, 1] > 0  # x1 means the opposite
        >>> for drift in DynamicModelTreeClassifier().partial_fit(X, y).drifts():
        ...     print(drift)
        Row 31,200: drift since about row 30,000, in all rows. On the rows before, the tree would...
        """
        tree, _ = inside(self)
        return [drift for drift in history_of(tree).drifts if drift.n_rows > since]

    @undisturbed
    def history(self, *, library: str | None = None) -> Any:
        """Return the changes of the tree as a data frame, oldest first.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Whose data frame; by default of the first of these that is installed.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            The figures of each `Event`, with paths and conditions as text; ``removed`` are the
            splits that went, ``curves`` the features whose lines were bent, with their knots,
            ``floor`` is the share of labels that look random, ``why`` the sentence.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> log = DynamicModelTreeClassifier().partial_fit(X, y).history()
        >>> log[["n_rows", "kind", "condition"]]
           n_rows   kind       condition
        0     800  split  x1 <= -0.01286
        """
        return changes.history(self, library)

    @undisturbed
    def tree_at(self, step: int | None = None, *, row: int | None = None) -> Structure:
        """Return the nodes and splits of the tree as it was after a time step, or so many rows.

        The log holds the last 1,000 changes, in the words of their time. What was before them is
        folded into one tree, the earliest available. A batch is a step, or several of 200
        rows; `history` has the steps and rows of all changes.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> print(model.tree_at(3))
        |--- leaf 0, since row 0
        >>> print(model.tree_at(row=1000))
        |--- x1 <= -0.01286
        |   |--- leaf 1, since row 800
        |--- x1 > -0.01286
        |   |--- leaf 2, since row 800
        """
        return changes.tree_at(self, step, row)

    @undisturbed
    def diff(
        self,
        first: int | None = None,
        second: int | None = None,
        *,
        row: tuple[int, int] | None = None,
    ) -> Diff:
        """Return what changed after one time step and until another, or between two rows.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> model.diff(3, 10) == model.diff(row=(600, 2000))
        True
        >>> print(model.diff(3, 10))
        1 split; from 1 leaf to 2 leaves.
        Gone: all rows
        New: rows with x1 <= -0.01286
        New: rows with x1 > -0.01286
        - Row 800, step 4: all rows are split by x1 <= -0.01286. Over 398 rows a model for ...
        """
        return changes.diff(self, first, second, row)

    # ------------------------------------------------------------------ what it knows
    @undisturbed
    def rules(self, *, max_weights: int = 3) -> list[Rule]:
        """Return the leaves from left to right as readable rules.

        Parameters
        ----------
        max_weights : int, default=3
            Weights per leaf (with more than two labels: per leaf and label), strongest first.

        Returns
        -------
        list of Rule
            Conditions, share of rows, label frequencies, strongest weights and curves, since
            when; `str(rule)` says it in words.

        Examples
        --------
        >>> from driftree import DynamicModelTreeClassifier
        >>> model = DynamicModelTreeClassifier()
        >>> for age in range(20, 60):
        ...     model.learn_one({"age": age}, "old" if age > 40 else "young")
        >>> for rule in model.rules():
        ...     print(rule)
        Always (100% of rows): young 52%, old 48%. Log-odds of old rise with age (+0.0378 per unit).

        Where one line is not enough it is bent, and the rule says where it rises and falls:

        >>> import numpy as np
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 1))
        >>> model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, abs(X[:, 0]) > 0.5)
        >>> print(model.rules()[0])
        Always (100% of rows): True 50%, False 50%. With x0, log-odds of True fall by 11.9 from
        -0.9666 to 0.04305, then rise by 12.2 to 0.9399.
        """
        return rules(self, max_weights=max_weights)

    @undisturbed
    def leaf_models(self) -> list[LeafModel]:
        """Return the leaves from left to right, each with its model in your units.

        Returns
        -------
        list of LeafModel
            Intercept, all weights and curves per label in the units of the features, and how far
            each moves the log-odds, which can be compared across features and leaves. For a
            regressor everything is about the number, "y", in its unit.

        Examples
        --------
        >>> from driftree import DynamicModelTreeClassifier
        >>> model = DynamicModelTreeClassifier()
        >>> for age in range(20, 60):
        ...     model.learn_one({"age": age}, "old" if age > 40 else "young")
        >>> [leaf] = model.leaf_models()
        >>> print(f"{leaf.weights['old']['age']:.3f} per year")
        0.038 per year
        >>> print(f"{leaf.effects['old']['age']:.1f} for two standard deviations")
        0.9 for two standard deviations
        """
        return leaf_models(self)

    @undisturbed
    def feature_importance(self) -> dict[str, Importance]:
        """Return what each feature contributes, by loss earned and by weight, strongest first.

        Returns
        -------
        dict of str to Importance
            `earned`: nats per 1,000 rows that the present splits on the feature save, as measured;
            `weight`: how far it typically moves the log-odds inside the leaves.
            `driftree.explain.contributions` says how both are computed.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 3))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> list(model.feature_importance())[-1]
        'x2'
        """
        return feature_importance(self)

    @property
    @undisturbed
    def feature_importances_(self) -> NDArray[np.float64]:
        """One number per column of X, 1 in all, for scikit-learn's RFE and SelectFromModel.

        The sum of a feature's two shares in `feature_importance`, of what is earned and of the
        weight; of a time, that of its parts.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.feature_selection import SelectFromModel
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 4))
        >>> y = X[:, 1] > 0
        >>> SelectFromModel(DynamicModelTreeClassifier()).fit(X, y).get_support()
        array([False,  True, False, False])
        """
        return column_importances(self)

    @undisturbed
    def to_dict(self) -> dict[str, Any]:
        """Return the tree as nested data for `json.dumps`.

        Returns
        -------
        dict
            Conditions, shares, label frequencies and all leaf models, without NaN: enough to
            predict elsewhere. `driftree.explain.tree_data` describes the schema.

        Examples
        --------
        >>> from driftree import DynamicModelTreeClassifier
        >>> model = DynamicModelTreeClassifier()
        >>> for age in range(20, 60):
        ...     model.learn_one({"age": age}, "old" if age > 40 else "young")
        >>> data = model.to_dict()
        >>> data["version"], data["labels"], data["tree"]["models"][0]["label"]
        (2, ['young', 'old'], 'old')
        """
        return to_dict(self)

    @undisturbed
    def to_dot(self, *, max_weights: int = 3) -> str:
        """Return the tree in the language of Graphviz, for ``dot -Tsvg`` and the like.

        Names of more than 40 characters lose their middle; of many labels the most frequent are
        shown.

        Parameters
        ----------
        max_weights : int, default=3
            Weights to show per leaf, strongest first; with more than two labels those of the most
            frequent one.

        Examples
        --------
        >>> from driftree import DynamicModelTreeClassifier
        >>> model = DynamicModelTreeClassifier()
        >>> model.learn_one({"age": 31}, "young")
        >>> model.to_dot().splitlines()[0]
        'digraph driftree {'
        """
        return to_dot(self, max_weights=max_weights)

    # ------------------------------------------------------------------ why this prediction
    @undisturbed
    def explain_one(self, x: Mapping[Hashable, Any]) -> Explanation:
        """Return why one row is predicted as it is: its rule, and what each feature contributes.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent, None or NaN is missing.

        Returns
        -------
        Explanation
            `intercept` and `contributions` sum to `decision_function`, or to the prediction of a
            regressor; `print` says it in words.
            `unknown` are names in `x` that the model does not know.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> model = DynamicModelTreeClassifier()
        >>> for age, income in rng.uniform([20, 0], [80, 90], size=(2000, 2)).tolist():
        ...     granted = income > 30 if age < 50 else income < 60
        ...     model.learn_one({"age": age, "income": income}, "granted" if granted else "refused")
        >>> print(model.explain_one({"age": 35, "income": 20}))
        Prediction: refused, 93% (granted 7%)
        Rule: age <= 50.36 (leaf 1, 690 rows learnt, stands since row 635)
        Log-odds of refused over granted, compared with an average row:
            for        +7.20  income = 20
            against    -0.30  age = 35
            An average row has -4.34, this one +2.56.
            (`.contributions` are about granted: their signs are opposite.)
        Certainty: if this rule holds, the probability of refused is between 87% and 96% (95%
        interval).

        A regressor's are in the unit of its target:

        >>> from driftree import DynamicModelTreeRegressor
        >>> model = DynamicModelTreeRegressor(follow_target=False)
        >>> for age, income in rng.uniform([20, 0], [80, 90], size=(1000, 2)).tolist():
        ...     model.learn_one({"age": age, "income": income}, 100 + 2 * income - age)
        >>> print(model.explain_one({"age": 35, "income": 20}))
        Prediction: 105.0, with an error of about 0.0
        Rule: all rows (leaf 0, 1,000 rows learnt, stands since row 0)
        What makes the number, compared with an average row:
            -52.8  income = 20
            +15.1  age = 35
            An average row has 142.7, this one 105.0.
        Certainty: if this rule holds, the mean of such rows is 105.0 (95% interval).
        """
        return contributions.explain_one(self, x)

    @undisturbed
    def explain(self, X: Any) -> Explanations:
        """Return why each row is predicted as it is; the rows may be all that `predict` takes.

        Parameters
        ----------
        X : array, data frame or dict of columns, of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        Explanations
            Arrays over all rows; `explanations[i]` is the `Explanation` of row i, and a slice or a
            boolean mask gives those of several rows.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-1, 1, size=(4000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> why = model.explain(X)
        >>> log_odds = why.base_values + why.values.sum(axis=1)
        >>> bool(np.allclose(log_odds, model.decision_function(X)))
        True
        """
        return contributions.explain(self, X)

    # ------------------------------------------------------------------ what would change it
    @undisturbed
    def counterfactual(
        self,
        x: Mapping[Hashable, Any],
        *,
        target: Hashable = None,
        fixed: Iterable[Hashable] = (),
        ranges: Mapping[Hashable, Any] | None = None,
        below: float | None = None,
        above: float | None = None,
        between: tuple[float, float] | None = None,
        probability: float | None = None,
        max_changes: int | None = None,
    ) -> Counterfactual:
        """Return the nearest row that the model predicts as wanted: what would change it.

        Distances are Euclidean: numbers are measured in standard deviations (paper's setting: in
        units of the range seen), and a category counts 1 when it changes. So do numbers that were
        only 0 and 1 so far, which become nothing else, and numbers that never varied. A missing
        value stays missing and a present one present.

        Where features are sparse, each that the row holds may become 0, which counts 1. Of those
        that it does not hold, only what the tree may be split by (the features that matter most,
        a few dozen) may come, with its usual value; and a text may become another such level.
        Numbers that most rows hold move as described.

        The model knows no more about what is possible: a number may leave the range ever seen
        unless `ranges` or `max_changes` keeps it, a whole number may become a fraction, and 0/1
        columns that stand for one category are not tied to each other (give it as one column of
        text instead).

        New numbers are rounded, away from the old ones, to as few digits as the model still agrees
        to. So the row may be a little farther than the nearest: per number mostly by less than
        0.02 in these units, a hundredth of what two standard deviations are.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent, None or NaN is missing.
        target : hashable, optional
            Classifiers: the label wanted; by default any other than the one predicted for `x`.
        fixed : iterable of names
            Features that must not change.
        ranges : dict, optional
            Limits by name: ``(low, high)`` of a number, None where open; a list of the levels of a
            category. A present value outside has to move into them.
        below, above, between : float, float, (float, float), optional
            Regressors: the numbers wanted, one of the three. What the model knows itself, such as
            "last y", stays what it is.
        probability : float, optional
            Classifiers: how probable the label has to be at least, such as 0.6; by default more
            probable than the others. With more than two labels the row may be farther than the
            nearest (`exact` is False).
        max_changes : int, optional
            How many features may change at most. The fewest change that are enough; of these rows,
            it is the nearest; numbers that came as whole ones stay whole, and within the values
            ever seen, unless `ranges` names them. `counterfactuals` returns others, too.

        Returns
        -------
        Counterfactual
            `.x` is the row, checked by predicting it; `.changes`, `.distance`, ... `str` says it,
            with the very numbers of the row. It is false if there is none, and `.reason` says why.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> model = DynamicModelTreeClassifier()
        >>> for income, has_job in zip(rng.normal(40e3, 10e3, 2000), rng.random(2000) < 0.5):
        ...     label = "granted" if income + 15e3 * has_job > 50e3 else "refused"
        ...     model.learn_one({"income": income, "job": "yes" if has_job else "no"}, label)
        >>> x = {"income": 25_000, "job": "no"}
        >>> print(model.counterfactual(x, fixed=["job"]))
        It would be 'granted' (50%) if income were 51,917 instead of 25,000.
        >>> print(model.counterfactual(x, fixed=["job"], ranges={"income": (None, 30_000)}))
        Nothing makes it 'granted': job is fixed and income has a range; without these limits it
        would be if job were 'yes' instead of 'no' and income were 34,986 instead of 25,000.

        >>> from driftree import DynamicModelTreeRegressor
        >>> model = DynamicModelTreeRegressor(follow_target=False)
        >>> for temp in rng.normal(15, 5, 1000).tolist():
        ...     model.learn_one({"temp": temp}, 120 + 4 * temp)
        >>> print(model.counterfactual({"temp": 25}, below=200))
        It would be 199.9... if temp were ... instead of 25.
        """
        wish = {"target": target, "below": below, "above": above, "between": between}
        return counterfactual(
            self,
            x,
            fixed=fixed,
            ranges=ranges,
            max_changes=max_changes,
            probability=probability,
            **wish,
        )

    @undisturbed
    def counterfactuals(
        self,
        x: Mapping[Hashable, Any],
        *,
        n: int = 3,
        max_changes: int = 3,
        probability: float | None = None,
        target: Hashable = None,
        fixed: Iterable[Hashable] = (),
        ranges: Mapping[Hashable, Any] | None = None,
        below: float | None = None,
        above: float | None = None,
        between: tuple[float, float] | None = None,
    ) -> Counterfactuals:
        """Return several ways to another prediction that a person can act on.

        Each changes other features, none of them more than it must: the fewest changes come first,
        and of as many, the nearest. Numbers that came as whole numbers stay whole, and all within
        the values ever seen, unless `ranges` names them; a category becomes a level that was
        learnt, and each row was predicted to be sure.

        Parameters
        ----------
        x : dict
            Feature names to values.
        n : int, default=3
            How many at most.
        max_changes : int, default=3
            How many features may change at most.
        probability : float, optional
            How probable the label has to be at least. By default 0.6 where there are two labels, so
            that a small deviation does not reverse it.
        target, fixed, ranges, below, above, between
            As for `counterfactual`.

        Returns
        -------
        Counterfactuals
            If there is none, one that says why. `exact` is False where there were too many sets of
            features to search them all.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> model = DynamicModelTreeClassifier()
        >>> for income, has_job in zip(rng.normal(40e3, 10e3, 2000), rng.random(2000) < 0.5):
        ...     label = "granted" if income + 15e3 * has_job > 50e3 else "refused"
        ...     model.learn_one({"income": income, "job": "yes" if has_job else "no"}, label)
        >>> for way in model.counterfactuals({"income": 38_000, "job": "no"}):
        ...     print(way)
        It would be 'granted' (99.4%) if job were 'yes' instead of 'no'.
        It would be 'granted' (60%) if income were 52,578 instead of 38,000.
        """
        tree, _ = inside(self)
        has_two = tree.engine.has_labels and tree.engine.n_classes == 2
        wish = {"target": target, "below": below, "above": above, "between": between}
        return counterfactuals(
            self,
            x,
            n=n,
            fixed=fixed,
            ranges=ranges,
            max_changes=max_changes,
            probability=0.6 if probability is None and has_two else probability,
            **wish,
        )

    # ------------------------------------------------------------------ in notebooks
    # scikit-learn's `_repr_html_` is a property that gives this method, or nothing under
    # `sklearn.set_config(display="text")`.
    @undisturbed
    def _repr_html_inner(self) -> str:
        return notebook_html(self, super()._repr_html_inner())  # type: ignore[misc]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = notebook_html(self, bundle["text/html"])
        return bundle
