"""Custom losses, as Python functions of whole arrays, called by the kernels.

A loss has a name. Parameters and files hold only the name, no code: to load a model with such a
loss, create the loss first, for example by importing the module that defines it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from driftree.learn.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BUILT_IN = ("gaussian", "student", "poisson", "quantile")
LINKS = ("identity", "log")
_made: dict[str, Loss] = {}  # by name; of two with the same name, the later


@dataclass(frozen=True)
class Loss:
    """A custom loss for `DynamicModelTreeRegressor`, as Python functions of whole arrays.

    Each function takes two arrays of the same length: targets, and the linear predictors of the
    same rows, both in the unit of the target and read-only. It returns one number per row, or one
    for all.

    Parameters
    ----------
    name : str
        Its name in files: these hold no code, so a model with this loss can only be loaded after a
        loss of this name was created. The name may also be given as `loss`.
    loss : callable
        The loss of a row: 0 where the prediction is perfect, and never negative. Its unit does not
        matter: the tree learns its typical size, and converts it to nats.
    slope : callable
        Its derivative with respect to the predictor.
    curvature : callable
        Its expected second derivative with respect to the predictor, above 0. If that is not
        positive, the curvature of a parabola that touches the loss from above.
    link : {"identity", "log"}, default="identity"
        Whether the predictor is the prediction, or its logarithm. With
        "log" targets must not be negative.

    See Also
    --------
    DynamicModelTreeRegressor : Takes it as `loss`.

    Notes
    -----
    The functions are called while the model learns, never to predict or explain. If one of them
    raises, or returns something that is not a number, the call that learns raises, and the model is
    unchanged.

    Examples
    --------
    A prediction that is too low costs three times as much as one that is too high:

    >>> import numpy as np
    >>> from driftree import DynamicModelTreeRegressor, Loss
    >>> def cost(y, p):
    ...     return np.where(y > p, 3.0, 1.0)
    >>> short = Loss(
    ...     "costly if too low",
    ...     loss=lambda y, p: cost(y, p) * (p - y) ** 2 / 2,
    ...     slope=lambda y, p: cost(y, p) * (p - y),
    ...     curvature=cost,
    ... )
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, size=(2000, 1))
    >>> y = 5 * X[:, 0] + rng.normal(0, 2, size=2000)
    >>> model = DynamicModelTreeRegressor(short, follow_target=False).fit(X, y)
    >>> share_too_low = np.mean(model.predict(X) < y)
    >>> print(f"{share_too_low:.0%}")
    34%
    """

    name: str
    loss: Callable[[NDArray[np.float64], NDArray[np.float64]], Any]
    slope: Callable[[NDArray[np.float64], NDArray[np.float64]], Any]
    curvature: Callable[[NDArray[np.float64], NDArray[np.float64]], Any]
    link: str = "identity"

    def __post_init__(self) -> None:
        if type(self.name) is not str or self.name in ("", *BUILT_IN):
            raise ValueError(
                f"the name of a loss must be text, and not one of {', '.join(map(repr, BUILT_IN))},"
                f" got {shown(self.name)}"
            )
        for function in ("loss", "slope", "curvature"):
            if not callable(getattr(self, function)):
                raise TypeError(
                    f"{function} of loss {self.name!r} must be a function of targets and "
                    f"predictors, got {shown(getattr(self, function))}"
                )
        if self.link not in LINKS:
            raise ValueError(f"link must be 'identity' or 'log', got {self.link!r}")
        _made[self.name] = self

    def __reduce__(self) -> tuple[type[Loss], tuple[Any, ...]]:
        return Loss, (self.name, self.loss, self.slope, self.curvature, self.link)

    # ------------------------------------------------------------------ for the kernels
    def ask(
        self,
        y: NDArray[np.float64],
        predictor: NDArray[np.float64],
        perfect: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return losses, slopes and curvatures; with a log link also those at the targets."""
        for given in (y, predictor):
            given.flags.writeable = False  # what one function changed, the next would read
        found = np.empty((3 if perfect is None else 4, len(y)))
        self._fill(found[0], "loss", y, predictor)
        self._fill(found[1], "slope", y, predictor)
        self._fill(found[2], "curvature", y, predictor)
        if perfect is not None:
            self._fill(found[3], "curvature", y, perfect)
        return found

    def _fill(
        self,
        out: NDArray[np.float64],
        which: str,
        y: NDArray[np.float64],
        predictor: NDArray[np.float64],
    ) -> None:
        answer = getattr(self, which)(y, predictor)
        try:
            out[:] = answer
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{which} of loss {self.name!r} must return one number per row, {len(y)} of them, "
                f"or one for all, got {shown(answer)}"
            ) from error

    def refuse(
        self,
        y: NDArray[np.float64],
        predictor: NDArray[np.float64],
        found: NDArray[np.float64],
        row: int,
    ) -> NoReturn:
        """Raise an error that says what is wrong with the results for a row."""
        loss, slope, *curvatures = found[:, row].tolist()
        if not np.isfinite(loss) or loss < 0:
            what, rule = f"loss is {loss!r}", "finite and not negative"
        elif not np.isfinite(slope):
            what, rule = f"slope is {slope!r}", "finite"
        else:
            what, rule = f"curvature is {min(curvatures)!r}", "finite and above 0"
        raise ValueError(
            f"with loss {self.name!r}, {what} for the target {y[row].item()!r} and the predictor "
            f"{predictor[row].item()!r}: it must be {rule}"
        )


def find(name: str) -> Loss | None:
    """Return the custom loss of this name; None if it is built in."""
    if name in BUILT_IN:
        return None
    check_name(name)
    return _made[name]


def has_log_link(loss: object) -> bool:
    """Return whether a loss, given as a parameter, takes no negative targets.

    Examples
    --------
    >>> has_log_link("poisson"), has_log_link("student"), has_log_link(None)
    (True, False, False)
    """
    own = _made.get(loss) if isinstance(loss, str) else loss
    return loss == "poisson" or (isinstance(own, Loss) and own.link == "log")


def check_name(loss: object) -> None:
    """Raise if there is no such loss."""
    if isinstance(loss, str) and (loss in BUILT_IN or loss in _made):
        return
    raise ValueError(
        f"loss must be one of {', '.join(map(repr, BUILT_IN))}, or a driftree.Loss, got {loss!r}; "
        "a custom loss is known by its name once it has been created: import its module first"
    )
