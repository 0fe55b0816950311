"""Listening: calls back with the changes and drifts of a tree since it was last looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from driftree.learn.drifts import Drift
    from driftree.learn.events import Event

    OnChange = Callable[[Event], object]
    OnDrift = Callable[[Drift], object]


class Listener:
    """Tells somebody of a model's changes and drifts, each once.

    Parameters
    ----------
    on_change : callable, optional
        Called with every `Event`.
    on_drift : callable, optional
        Called with every `Drift`.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    >>> model, listener = DynamicModelTreeClassifier(), Listener(on_change=print)
    >>> for rows in np.split(np.arange(2000), 4):
    ...     listener.look(model.partial_fit(X[rows], (X[rows, 0] > 0) ^ (X[rows, 1] > 0)))
    Row 700, step 4: all rows are split by x1 <= -0.01286. ...
    """

    def __init__(self, on_change: OnChange | None = None, on_drift: OnDrift | None = None) -> None:
        self.on_change = on_change
        self.on_drift = on_drift
        self._n_rows = 0

    def skip(self, model: Any) -> None:
        """Leave out all that happened so far."""
        self._n_rows = getattr(model, "n_rows_seen_", 0)

    def look(self, model: Any) -> None:
        """Tell what has happened since the last look."""
        if self.on_change is None and self.on_drift is None:
            return
        seen, self._n_rows = self._n_rows, getattr(model, "n_rows_seen_", 0)
        if self.on_change is not None:
            for event in model.events_:
                if event.n_rows > seen:
                    self.on_change(event)
        if self.on_drift is not None:
            for drift in model.drifts(since=seen):
                self.on_drift(drift)


def can_tell(model: Any) -> bool:
    """Tell whether a model has a history that one can listen to."""
    return hasattr(model, "drifts") and bool(getattr(model, "keep_history", False))
