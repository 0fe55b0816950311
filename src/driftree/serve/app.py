"""App: the routes, the middleware and the errors put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect

from driftree.serve.limits import Refusal
from driftree.serve.metrics import Metrics
from driftree.serve.middleware import AccessMiddleware
from driftree.serve.routes import Answer, open_router, refuse, router

if TYPE_CHECKING:
    from driftree.serve.writer import Writer

API_VERSION = "1"  # of the requests and answers, not of the library


def make_app(writer: Writer, *, token: str | None = None, only_loopback: bool = True) -> FastAPI:
    """Return the application that lets others use a model.

    Parameters
    ----------
    writer : Writer
        Who has the model; it must have been started.
    token : str, optional
        What clients must send.
    only_loopback : bool, default=True
        Whether requests must be for this machine by name.
    """
    app = FastAPI(
        title="driftree",
        version=API_VERSION,
        description="A Dynamic Model Tree that predicts, learns and explains itself.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.writer = writer
    app.state.metrics = Metrics()
    app.include_router(router)
    app.include_router(open_router)
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_bad_query)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_middleware(
        AccessMiddleware,
        answer=refuse,
        token=token,
        only_loopback=only_loopback,
        max_requests=writer.limits.max_requests,
        metrics=app.state.metrics,
    )
    return app


async def _on_refusal(_: Any, refusal: Any) -> Answer:
    return refuse(refusal)


async def _on_bad_query(_: Any, error: Any) -> Answer:
    first = error.errors()[0]
    return Answer({"detail": f"{', '.join(map(str, first['loc']))}: {first['msg']}"}, 422)


async def _on_disconnect(_: Any, __: Any) -> Answer:
    return Answer({"detail": "the body ended too early"}, 400)  # which nobody reads
