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
    """The methods by which a Dynamic Model Tree explains itself; a mixin of the estimators."""

    _tree: Tree | None

    if TYPE_CHECKING:  # the estimator's own, further on in its bases

        def _encoded(self, X: Any) -> Batch: ...

    # ------------------------------------------------------------------ why it changed
    @undisturbed_alone
    def why(
        self, *, step: int | None = None, node: int | None = None, row: int | None = None
    ) -> str:
        """Return why the tree changed, or has its present form.

        Parameters
        ----------
        step : int, optional
            Changes at this time step; if there were none, the last change before.
        row : int, optional
            The same by the number of rows learnt, as in events.
        node : int, optional
            Only at this node, an id as returned by `apply`. Without a step: what the node is at
            present, which change created it, and how near it is to the next change.

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
        """Return the alarms so far: when and where the rule behind the rows changed.

        A few rows are kept, and 8,000 rows later their loss is computed again. If it is larger than
        when they arrived, what the tree has learnt since is not true of them. So even a drift is
        detected that the tree follows so fast that its loss hardly rises. On a stream without
        changes there is at most one alarm per million rows on average. It takes less than 1 % of
        the time of learning.

        Parameters
        ----------
        since : int, default=0
            Only alarms raised after so many rows.

        Returns
        -------
        list of Drift
            Oldest first, at most 1,000; `str` of each is a sentence.

        See Also
        --------
        driftree.explain.loss_rises : When the loss itself rose, and in which branches.

        Notes
        -----
        No drift can be detected in the first 20,000 rows or so. Sparse features (text) are not
        watched. A rule that depends on the time of day is a drift, too.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-1, 1, size=(40_000, 2))
        >>> y = X.sum(axis=1) + rng.normal(scale=0.3, size=40_000) > 0
        >>> y[30_000:] = X[30_000:, 0] - X[30_000:, 1] > 0  # the effect of x1 is reversed
        >>> for drift in DynamicModelTreeClassifier().partial_fit(X, y).drifts():
        ...     print(drift)
        Row 31,200: drift since about row 30,000, in all rows. On earlier rows its loss would...
        """
        tree, _ = inside(self)
        return [drift for drift in history_of(tree).drifts if drift.n_rows > since]

    @undisturbed
    def history(self, *, library: str | None = None) -> Any:
        """Return the changes of the tree as a data frame, oldest first.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Library of the data frame; by default the first of these that is installed.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            The figures of each `Event`, with paths and conditions as text; ``removed`` are the
            removed splits, ``curves`` the features whose lines were bent, with their knots,
            ``memory`` is the number of rows that a model remembers now, ``floor`` the share of
            labels that look random, ``why`` the sentence.

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

        The log holds the last 1,000 changes, with the names of their time. Earlier ones are folded
        into one tree, the earliest available. A batch is a step, or several of 200 rows; `history`
        has the steps and rows of all changes.

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
            Conditions, share of rows, label shares, strongest weights and curves, since when;
            `str(rule)` is a sentence.

        Examples
        --------
        >>> from driftree import DynamicModelTreeClassifier
        >>> model = DynamicModelTreeClassifier()
        >>> for age in range(20, 60):
        ...     model.learn_one({"age": age}, "old" if age > 40 else "young")
        >>> for rule in model.rules():
        ...     print(rule)
        Always (100% of rows): young 52%, old 48%. Log-odds of old rise with age (+0.0378 per unit).

        Where a line is bent, the rule says where it rises and falls:

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
            Intercept, all weights and curves per label in the units of the features, and the effect
            of each, which can be compared across features and leaves. For a regressor everything
            refers to the number, "y", in its unit.

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
        """Return the importance of each feature, by loss saved and by weight, strongest first.

        Returns
        -------
        dict of str to Importance
            `earned`: measured loss that the present splits on the feature save, in nats per 1,000
            rows; `weight`: its typical effect on the log-odds inside the leaves.
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
        """Importances of the columns of X, which sum to 1, for RFE and SelectFromModel.

        It is proportional to the sum of a feature's two shares in `feature_importance`, of what is
        earned and of the weight; for a time, that of its parts.

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

        Names of more than 40 characters are shortened in the middle; of many labels the most
        frequent are shown.

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
        """Explain the prediction of one row: its rule, and the contribution of each feature.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent, None or NaN is missing.

        Returns
        -------
        Explanation
            `intercept` and `contributions` sum to `decision_function`, or to the prediction of a
            regressor; it prints as text. `unknown` are names in `x` that the model does not know.

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
        Rule: age <= 49.77 (leaf 1, 690 rows learnt, in place since row 1,888)
        Log-odds of refused over granted, compared with an average row:
            for        +7.20  income = 20
            against    -0.30  age = 35
            An average row has -4.34, this one +2.56.
            (`.contributions` are about granted: their signs are opposite.)
        Certainty: if this rule holds, the probability of refused is between 87% and 96% (95%
        interval).

        For a regressor they are in the unit of its target:

        >>> from driftree import DynamicModelTreeRegressor
        >>> model = DynamicModelTreeRegressor(follow_target=False)
        >>> for age, income in rng.uniform([20, 0], [80, 90], size=(1000, 2)).tolist():
        ...     model.learn_one({"age": age, "income": income}, 100 + 2 * income - age)
        >>> print(model.explain_one({"age": 35, "income": 20}))
        Prediction: 105.0, with an error of about 0.0
        Rule: all rows (leaf 0, 1,000 rows learnt, in place since row 0)
        What makes the number, compared with an average row:
            -52.8  income = 20
            +15.1  age = 35
            An average row has 142.7, this one 105.0.
        Certainty: if this rule holds, the mean of such rows is 105.0 (95% interval).
        """
        return contributions.explain_one(self, x)

    @undisturbed
    def explain(self, X: Any) -> Explanations:
        """Explain the predictions of rows, in any form that `predict` takes.

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
        """Return the nearest row with the wanted prediction: what would change it.

        Distances are Euclidean: numbers are measured in standard deviations (paper's setting: in
        units of the range seen), and a category counts 1 when it changes. So do numbers with only
        the values 0 and 1 so far, which take no other value, and numbers that never varied. A
        missing value stays missing and a present one present.

        With sparse features, each that the row holds may become 0, which counts 1. Of the others,
        only those that the tree may split on (the most important ones, a few dozen) may be added,
        with their usual value; and a text may become another such level. Numbers that most rows
        hold change as described.

        The model does not know what is possible: a number may leave the range of the data unless
        `ranges` or `max_changes` prevents it, a whole number may become a fraction, and 0/1 columns
        that encode one category change independently (give it as one column of text instead).

        New numbers are rounded, away from the old ones, to as few digits as keep the wanted
        prediction. So the row may be slightly farther than the nearest: per number mostly by less
        than 0.02 standard deviations.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent, None or NaN is missing.
        target : hashable, optional
            Classifiers: the wanted label; by default any except the one predicted for `x`.
        fixed : iterable of names
            Features that must not change.
        ranges : dict, optional
            Limits by name: ``(low, high)`` of a number, None where open; a list of the levels of a
            category. A present value outside has to move into them.
        below, above, between : float, float, (float, float), optional
            Regressors: the wanted range, by one of the three. Inputs that the model computes
            itself, such as "last y", stay unchanged.
        probability : float, optional
            Classifiers: the least probability of the label, such as 0.6; by default it must be more
            probable than the others. With more than two labels the row may be farther than the
            nearest (`exact` is False).
        max_changes : int, optional
            Largest number of features that may change. It is the nearest of the rows with the
            fewest changes; whole numbers stay whole, and numbers within the range of the data,
            unless `ranges` names them. `counterfactuals` returns others, too.

        Returns
        -------
        Counterfactual
            `.x` is the row, checked by predicting it; `.changes`, `.distance`, ... `str` is a
            sentence with exactly these numbers. It is false if there is none, and `.reason` says
            why.

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

        Each changes different features, as little as possible: the fewest changes come first, and
        then the nearest. Whole numbers stay whole, and all numbers within the range of the data,
        unless `ranges` names them; a category becomes a known level, and the prediction of each row
        was checked.

        Parameters
        ----------
        x : dict
            Feature names to values.
        n : int, default=3
            Largest number of rows.
        max_changes : int, default=3
            Largest number of features that may change.
        probability : float, optional
            The least probability of the label. By default 0.6 with two labels, so that a small
            deviation does not reverse the prediction.
        target, fixed, ranges, below, above, between
            As for `counterfactual`.

        Returns
        -------
        Counterfactuals
            If there is none, one entry that says why. `exact` is False if there were too many sets
            of features to search them all.

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

    # ------------------------------------------------------------------ in notebooks scikit-learn's
    # `_repr_html_` is a property that returns this method, or nothing with
    # `sklearn.set_config(display="text")`.
    @undisturbed
    def _repr_html_inner(self) -> str:
        return notebook_html(self, super()._repr_html_inner())  # type: ignore[misc]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = notebook_html(self, bundle["text/html"])
        return bundle
