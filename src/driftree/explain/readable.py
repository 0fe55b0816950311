"""Readable: the methods by which a tree explains itself. What they return is made next door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftree.explain import changes, contributions, describe

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from driftree.explain.changes import Diff
    from driftree.explain.describe import LeafModel
    from driftree.explain.explanation import Explanation, Explanations
    from driftree.learn.encoding import Encoder
    from driftree.learn.history import Structure
    from driftree.learn.tree import Tree


class Readable:
    """What a Dynamic Model Tree knows, why it changed, why it predicts; a part of the estimator."""

    _tree: Tree | None
    _encoder: Encoder | None

    if TYPE_CHECKING:  # the estimator's own, further on in its bases

        def _matrix(self, X: Any) -> NDArray[np.float64]: ...

    # ------------------------------------------------------------------ why it changed
    def why(self, *, step: int | None = None, node: int | None = None) -> str:
        """Say why the tree changed, or is as it is.

        Parameters
        ----------
        step : int, optional
            What changed at this time step; if nothing did, the last change before.
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
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> print(model.why(step=3))
        Nothing changed at step 3: no candidate had gained enough.
        >>> print(model.why())
        Row 1,000: all rows are split by x1 <= -0.002027. Over 398 rows a model for each side ...
        """
        return changes.why(self, step=step, node=node)

    def history(self) -> Any:
        """Return the changes of the tree as a data frame, oldest first.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            Of the library that is in use, else of the first that is installed. Columns are those of
            `Event`, with paths and conditions as text, and ``why``, the sentence.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> log = DynamicModelTreeClassifier().partial_fit(X, y).history()
        >>> log[["n_rows", "kind", "condition"]]
           n_rows   kind        condition
        0    1000  split  x1 <= -0.002027
        """
        return changes.history(self)

    def tree_at(self, step: int) -> Structure:
        """Return the nodes and splits of the tree as it was after a time step.

        The log holds the last 1,000 changes. What was before them is folded into one tree, the
        earliest that can be had.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> print(model.tree_at(3))
        |--- leaf 0, since row 0
        >>> print(model.tree_at(15))
        |--- x1 <= -0.002027
        |   |--- leaf 1, since row 1,000
        |--- x1 > -0.002027
        |   |--- leaf 2, since row 1,000
        """
        return changes.tree_at(self, step)

    def diff(self, first: int, second: int) -> Diff:
        """Return what changed after one time step and until another.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> model = DynamicModelTreeClassifier().partial_fit(X, y)
        >>> print(model.diff(3, 15))
        1 split; from 1 leaf to 2 leaves.
        Gone: all rows
        New: rows with x1 <= -0.002027
        New: rows with x1 > -0.002027
        - Row 1,000: all rows are split by x1 <= -0.002027. Over 398 rows a model for each side ...
        """
        return changes.diff(self, first, second)

    # ------------------------------------------------------------------ what it knows
    def leaf_models(self) -> list[LeafModel]:
        """Return the leaves from left to right, each with its linear model in your units."""
        return describe.leaf_models(self)

    # ------------------------------------------------------------------ why this prediction
    def explain_one(self, x: Mapping[Hashable, Any]) -> Explanation:
        """Return why one row is predicted as it is: its rule, and what each feature contributes.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent, None or NaN is missing.

        Returns
        -------
        Explanation
            `intercept` and `contributions` sum to `decision_function`; `print` says it in words.

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
        Prediction: refused, 84% (granted 16%)
        Rule: age <= 49.8 (leaf 1, 652 rows learnt, stands since row 683)
        Log-odds of refused over granted, compared with an average row:
            for        +3.62  income = 20
            against    -0.23  age = 35
            An average row has -1.75, this one +1.63.
        Certainty: if this rule holds, the probability of refused is between 80% and 87% (95%
        interval).
        """
        return contributions.explain_one(self, x)

    def explain(self, X: Any) -> Explanations:
        """Return why each row is predicted as it is; the rows may be all that `predict` takes.

        Parameters
        ----------
        X : array, data frame or dict of columns, of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        Explanations
            Arrays over all rows; `explanations[i]` is the `Explanation` of row i.

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
