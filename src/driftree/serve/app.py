"""App: the endpoints, and the application of endpoints, middleware and error handlers.

Endpoints that compute run in threads; learning waits for the writer.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPBearer
from starlette.requests import ClientDisconnect

from driftree.explain.tree_data import tell_event
from driftree.learn.storage import container, models
from driftree.serve import requests, responses
from driftree.serve.landing import POLICY, address_of, landing_page, look_at, to_page
from driftree.serve.middleware import CONTENT_TYPE, AccessMiddleware, Metrics
from driftree.serve.requests import LearnBatch, Refusal, busy
from driftree.serve.writer import feature_names, is_sparse, predicts_numbers
from driftree.show.report import report_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

    from driftree.serve.writer import Writer


Result = TypeVar("Result")
API_VERSION = "1"  # of requests and responses, not of the library
MAX_LONG = 2  # reports and counterfactuals in progress at a time
SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
KEY = "idempotency-key"
DESCRIPTIONS = {
    400: "The body is not JSON, or a header is invalid.",
    401: "The token is missing or wrong.",
    403: "The server is read-only.",
    408: "The body took too long.",
    409: "The model has learnt nothing, cannot explain itself, or does not fit into a file.",
    413: "Too many bytes or rows.",
    415: "The body is not declared as JSON.",
    421: "The Host header does not name this machine.",
    422: "The request is invalid, or takes too long; the detail names row and column.",
    503: "Overloaded, or learning has stopped.",
}
# The middleware checks the token, before anything is read; this only documents it.
SECURITY = [Security(HTTPBearer(auto_error=False))]
router = APIRouter(dependencies=SECURITY)
open_router = APIRouter()


class AsciiResponse(JSONResponse):
    """JSON as ASCII, so that names with lone surrogates are not an error here."""

    def __init__(self, content: Any, status: int = 200, headers: dict[str, str] | None = None):
        super().__init__(content, status, headers=SAFE | (headers or {}))

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refuse(refusal: Refusal) -> AsciiResponse:
    """Return the error response to a request."""
    return AsciiResponse({"detail": refusal.words}, refusal.status, refusal.headers)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": responses.Problem, "description": DESCRIPTIONS[status]}
        for status in sorted({401, 421, *statuses})
    }


def _takes(kind: type[BaseModel], *parameters: dict[str, Any]) -> dict[str, Any]:
    """Document a body that the endpoint parses itself."""
    schema = kind.model_json_schema()
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}, "parameters": list(parameters)}


BODY = (400, 408, 413, 415, 422)
KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A batch that is sent again with the same key is not learnt again.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": requests.MAX_KEY,
        "pattern": "^[!-~]+$",
    },
}


def _writer(request: Request) -> Writer:
    writer: Writer = request.app.state.writer
    return writer


async def _read(request: Request, kind: Any) -> Any:
    body = await requests.read_body(request, _writer(request).limits)
    return requests.read(kind, requests.parse(body))


def _check_rows(rows: list[dict[str, Any]], writer: Writer) -> list[dict[str, Any]]:
    """Check the limits; return the rows, with times as the parts that the model knows."""
    model = writer.model
    are_sparse = is_sparse(model) or model._look_sparse(rows, model._tree)
    requests.check_rows(rows, writer.limits, are_sparse=are_sparse)
    return requests.split_rows(rows, feature_names(model))


# ---------------------------------------------------------------------- predict and learn
async def predict(request: Request) -> Response:
    """Predict rows: labels and their probabilities, or numbers."""
    writer = _writer(request)
    wanted = await _read(request, requests.PredictRequest)
    rows = _check_rows(wanted.rows, writer)
    return AsciiResponse(await run_in_threadpool(responses.predict, writer.model, rows))


async def learn(request: Request) -> Response:
    """Learn a batch; once it is acknowledged, it survives a crash."""
    writer = _writer(request)
    key = request.headers.get(KEY)
    requests.check_key(key)
    are_numbers = predicts_numbers(writer.model)
    kind = requests.LearnNumbersRequest if are_numbers else requests.LearnRequest
    wanted = await _read(request, kind)
    labels = wanted.targets if are_numbers else wanted.labels
    rows = _check_rows(wanted.rows, writer)
    requests.check_batch(
        labels, wanted.weights, are_numbers=are_numbers, allowed=writer.limits.labels
    )
    waiting = writer.submit(LearnBatch(rows, labels, wanted.weights, key))
    learnt, is_new = await asyncio.wrap_future(waiting)
    return AsciiResponse(
        {"sequence": learnt.sequence, "rows": learnt.n_rows, "repeated": not is_new}
    )


# ---------------------------------------------------------------------- explain
async def explain(request: Request) -> Response:
    """Explain the prediction of a row."""
    writer = _writer(request)
    wanted = await _read(request, requests.ExplainRequest)
    [row] = _check_rows([wanted.row], writer)

    def look() -> dict[str, Any]:
        with writer.still() as model:
            return responses.explain(model, row)

    return AsciiResponse(await run_in_threadpool(look))


async def _in_turn(request: Request, work: Callable[[], Result]) -> Result:
    """Run a slow task, only a few at a time, so that predictions are not delayed."""
    state = request.app.state
    if state.n_long >= MAX_LONG:
        raise busy("too many reports and counterfactuals are in progress: try again")
    state.n_long += 1
    try:
        return await run_in_threadpool(work)
    finally:
        state.n_long -= 1


@router.post(
    "/counterfactual",
    response_model=responses.Counterfactuals,
    responses=_problems(*BODY, 409, 503),
    openapi_extra=_takes(requests.CounterfactualRequest),
)
async def counterfactual(request: Request) -> Response:
    """Find what would have to be different in a row for another prediction."""
    writer = _writer(request)
    wanted = await _read(request, requests.CounterfactualRequest)
    [wanted.row] = _check_rows([wanted.row], writer)

    def search() -> dict[str, Any]:
        return responses.counterfactuals(writer.snapshot(), wanted, writer.limits.search_seconds)

    return AsciiResponse(await _in_turn(request, search))


def target_router(*, are_numbers: bool) -> APIRouter:
    """Return the routes whose schema depends on the task: labels or numbers."""
    learnt = requests.LearnNumbersRequest if are_numbers else requests.LearnRequest
    found = responses.PredictedNumbers if are_numbers else responses.Predictions
    why = responses.WhyNumber if are_numbers else responses.WhyPrediction
    own = APIRouter(dependencies=SECURITY)
    own.post(
        "/predict",
        response_model=found,
        responses=_problems(*BODY, 409),
        openapi_extra=_takes(requests.PredictRequest),
    )(predict)
    own.post(
        "/learn",
        response_model=responses.Receipt,
        responses=_problems(*BODY, 403, 503),
        openapi_extra=_takes(learnt, KEY_PARAMETER),
    )(learn)
    own.post(
        "/explain",
        response_model=why,
        responses=_problems(*BODY, 409),
        openapi_extra=_takes(requests.ExplainRequest),
    )(explain)
    return own


@router.get("/explain", response_model=responses.Tree, responses=_problems(409))
def tree(request: Request) -> Response:
    """Describe the tree, as text and as rules."""
    with _writer(request).still() as model:
        return AsciiResponse(responses.tell_tree(model))


@router.get("/report", response_class=HTMLResponse, responses=_problems(409, 503))
async def report(request: Request) -> Response:
    """Show the report of the current model: one self-contained HTML page."""
    writer = _writer(request)

    def write() -> bytes:
        model = writer.snapshot()  # the page is then made while the model goes on learning
        responses.check_readable(model)
        return to_page(report_page(model, title=writer.path.name))

    headers = SAFE | {"Content-Security-Policy": "frame-ancestors 'none'"}  # the page has its own
    return HTMLResponse(await _in_turn(request, write), headers=headers)


@router.get("/", response_class=HTMLResponse, responses=_problems())
def landing(request: Request) -> Response:
    """Show what is served, and how to query it: a page without scripts."""
    writer = _writer(request)
    with writer.still():
        seen = look_at(writer)
    address = address_of(request.headers.get("host", ""))
    page = landing_page(seen, address, needs_token=request.app.state.needs_token)
    return HTMLResponse(to_page(page), headers=SAFE | {"Content-Security-Policy": POLICY})


@router.get("/events", response_model=responses.Events, responses=_problems(422))
def events(
    request: Request,
    after_row: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the changes of the tree after a row, oldest first, and their reasons."""
    with _writer(request).still() as model:
        found = [event for event in getattr(model, "events_", []) if event.n_rows > after_row]
    return AsciiResponse({"events": [tell_event(event) for event in found[:limit]]})


@router.get("/drifts", response_model=responses.Drifts, responses=_problems(422))
def drifts(
    request: Request,
    after_row: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List drifts detected after a row, oldest first: since when, which branch, which inputs."""
    with _writer(request).still() as model:
        found = responses.drifts_of(model, after_row)
    return AsciiResponse({"drifts": [drift.to_dict() for drift in found[:limit]]})


@router.get("/model", response_model=responses.Summary, responses=_problems())
def summary(request: Request) -> Response:
    """Summarise the model: class, parameters, features, size."""
    writer = _writer(request)
    with writer.still():
        return AsciiResponse(responses.summarise(writer))


@router.get(
    "/model/file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}, **_problems(409)},
)
def model_file(request: Request) -> Response:
    """Download the current model as a file that `driftree.load` reads."""
    try:
        with _writer(request).still() as model:
            data = container.to_bytes(models.KIND, *models.pack(model))
    except (TypeError, ValueError) as error:
        raise Refusal(409, str(error)) from None
    headers = SAFE | {"Content-Disposition": 'attachment; filename="model.dmt"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


# ---------------------------------------------------------------------- monitor
@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **_problems()},
)
async def metrics(request: Request) -> Response:
    """Return counts, durations and sizes for Prometheus."""
    figures = await run_in_threadpool(_figures, _writer(request))
    text = request.app.state.metrics.to_text(figures)
    return Response(text, media_type=CONTENT_TYPE, headers=SAFE)


def _figures(writer: Writer) -> dict[str, float | dict[str, float]]:
    with writer.still() as model:
        return {
            "driftree_rows_learnt_total": writer.rows_learnt,
            "driftree_snapshots_total": writer.snapshots,
            "driftree_failed_snapshots_total": writer.failed_snapshots,
            "driftree_rows_seen": getattr(model, "n_rows_seen_", 0),
            "driftree_batches": writer.sequence,
            "driftree_nodes": getattr(model, "n_nodes_", 1),
            "driftree_memory_bytes": model.memory_usage(),
            "driftree_journal_bytes": 0 if writer.journal is None else writer.journal.size,
            "driftree_rows_unsaved": writer.rows_unsaved,
            "driftree_learning": int(writer.journal is not None and writer.failure is None),
            **responses.watch_figures(model),
        }


@open_router.get(
    "/health",
    response_model=responses.Health,
    responses={
        421: {"model": responses.Problem, "description": DESCRIPTIONS[421]},
        503: {"model": responses.Health, "description": "Learning has stopped."},
    },
)
async def health(request: Request) -> Response:
    """Report whether the server works; it answers only after recovery."""
    writer = _writer(request)
    if writer.failure is not None:
        return AsciiResponse(
            {"status": "failed", "learning": False, "problem": writer.failure}, 503
        )
    is_learning = writer.journal is not None
    if writer.problem is not None:
        told = {"status": "degraded", "learning": is_learning, "problem": writer.problem}
        return AsciiResponse(told)
    return AsciiResponse({"status": "ok", "learning": is_learning})


# ---------------------------------------------------------------------- the application
def make_app(writer: Writer, *, token: str | None = None, only_loopback: bool = True) -> FastAPI:
    """Return the application that serves a model.

    Parameters
    ----------
    writer : Writer
        The writer of the model; it must have been started.
    token : str, optional
        Bearer token that clients must send.
    only_loopback : bool, default=True
        Whether the Host header must name this machine.
    """
    app = FastAPI(
        title="driftree",
        version=API_VERSION,
        description="A Dynamic Model Tree that predicts, learns and explains itself.",
        docs_url=None,  # these pages load scripts from a CDN
        redoc_url=None,
    )
    app.state.writer = writer
    app.state.metrics = Metrics()
    app.state.needs_token = token is not None
    app.state.n_long = 0
    app.include_router(target_router(are_numbers=predicts_numbers(writer.model)))
    app.include_router(router)
    app.include_router(open_router)
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_bad_query)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_middleware(
        AccessMiddleware,
        refuse=refuse,
        token=token,
        only_loopback=only_loopback,
        max_requests=writer.limits.max_requests,
        metrics=app.state.metrics,
    )
    return app


async def _on_refusal(_: Any, refusal: Any) -> AsciiResponse:
    return refuse(refusal)


async def _on_bad_query(_: Any, error: Any) -> AsciiResponse:
    first = error.errors()[0]
    return AsciiResponse({"detail": f"{', '.join(map(str, first['loc']))}: {first['msg']}"}, 422)


async def _on_disconnect(_: Any, __: Any) -> AsciiResponse:
    return AsciiResponse({"detail": "the body ended too early"}, 400)  # nobody reads it
