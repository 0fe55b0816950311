"""Landing: the page at `/`, which says what is served and how to query it.

It has no script and loads nothing: style and figures are inline. Names and labels come from users,
and are escaped.
"""

from __future__ import annotations

import html
import json
import shlex
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from driftree.serve.middleware import HOST
from driftree.serve.responses import drifts_of, summarise, watch_figures
from driftree.serve.writer import predicts_numbers, sparse_names
from driftree.show.report_data import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from driftree.learn.drifts import Drift
    from driftree.serve.writer import Writer

MOST_NAMES = 40
MOST_DRIFTS = 5
SAMPLED = 8  # features in the examples
STYLE = """
:root { color-scheme: light dark; --ground: #fbfbf9; --paper: #fff; --line: #e4e4de;
  --ink: #1f2328; --quiet: #5c636b; --accent: #0067a5; --code: #f4f4f0; --bar: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --paper: #1c2024; --line: #2e343a;
  --ink: #e8eaed; --quiet: #a2abb4; --accent: #6cbcf0; --code: #14171a; --bar: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 66rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere; }
h1, h2, p, dl, dd, ul { margin: 0; padding: 0; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; }
h2 { font-size: 1.1rem; margin-bottom: .7rem; }
a { color: var(--accent); }
.quiet, dt, th { color: var(--quiet); font-size: .9rem; font-weight: 400; }
header p { margin-top: .4rem; max-width: 46rem; }
main { display: grid; gap: 1.1rem; margin-top: 1.4rem; grid-template-columns: minmax(0, 1fr); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.1rem 1.25rem; }
dl { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
dd { font-size: 1.35rem; font-variant-numeric: tabular-nums; }
ul { list-style: none; } li + li { margin-top: .5rem; }
.names { display: flex; flex-wrap: wrap; gap: .4rem; }
.names li { margin: 0; padding: .1rem .6rem; border: 1px solid var(--line); border-radius: 99px; }
.names span { color: var(--quiet); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top; }
tr + tr td { border-top: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.label { width: 10rem; } svg { display: block; width: 100%; height: .7rem; margin-top: .4rem; }
rect { fill: var(--line); } .share { fill: var(--bar); }
code, pre { font: .86rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
td code { white-space: nowrap; }
pre { margin: .35rem 0 1rem; padding: .7rem .9rem; background: var(--code); white-space: pre-wrap;
  border: 1px solid var(--line); border-radius: 6px; } pre:last-child { margin-bottom: 0; }
@media (max-width: 40rem) { .label { width: 7rem; } .all td { display: block; }
  .all td + td { border: 0; padding-top: 0; } }
"""
POLICY = (
    "default-src 'none'; "
    f"style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# path, method, what it does
ENDPOINTS = (
    ("/predict", "POST", "predict rows"),
    ("/learn", "POST", "learn a batch; what is acknowledged survives a crash"),
    ("/explain", "POST", "why a row gets its prediction"),
    ("/counterfactual", "POST", "what would have to be different for another prediction"),
    ("/explain", "GET", "what the tree has learnt, as text and as rules"),
    ("/report", "GET", "the report: the tree at any time, and the reason for every change"),
    ("/events", "GET", "why the tree changed, oldest change first"),
    ("/drifts", "GET", "detected drifts: where, since when, which inputs"),
    ("/model", "GET", "kind, parameters, size"),
    ("/model/file", "GET", "the model as a file, for driftree.load"),
    ("/metrics", "GET", "metrics for Prometheus"),
    ("/health", "GET", "whether the server works"),
    ("/openapi.json", "GET", "the OpenAPI description"),
)


@dataclass(frozen=True, slots=True)
class ModelView:
    """What the page shows of a model, taken while it does not learn."""

    name: str  # of the file
    summary: dict[str, Any]
    figures: dict[str, Any]  # figures to monitor
    levels: dict[str, list[Any] | None]  # of features; None: numbers
    sample: dict[str, Any]  # a row
    n_changes: int
    drifts: list[Drift]
    problem: str | None
    are_numbers: bool
    can_explain: bool
    allowed: tuple[Any, ...] | None  # labels


def look_at(writer: Writer) -> ModelView:
    """Return what the page shows; the model must not learn meanwhile."""
    model = writer.model
    summary = summarise(writer)
    levels, means = _columns(model, summary["features"])
    sample = {
        name: means[name] if own is None else own[0]
        for name, own in list(levels.items())[:SAMPLED]
        if own != []
    }
    if sparse := sparse_names(model):  # a row holds few of them
        sample = dict.fromkeys((summary["features"] or sparse)[:SAMPLED], 1)
    return ModelView(
        name=writer.path.name,
        summary=summary,
        figures=watch_figures(model),
        levels=levels,
        sample=sample or {"age": 31, "car": "van"},
        n_changes=len(getattr(model, "events_", ())),
        drifts=drifts_of(model),
        problem=writer.failure or writer.problem,
        are_numbers=predicts_numbers(model),
        can_explain=hasattr(model, "explain_one"),
        allowed=writer.limits.labels,
    )


def _columns(
    model: Any, names: Sequence[str]
) -> tuple[dict[str, list[Any] | None], dict[str, float]]:
    """Return the levels of each feature (None: numeric), and typical numbers."""
    if model._tree is None:
        return {}, {}
    encoder = model._tree.encoder
    levels: dict[str, list[Any] | None] = {}
    means: dict[str, float] = {}
    for name in names:
        j = encoder.names[name]
        own = encoder.levels[j] if j < len(encoder.levels) else None
        levels[name] = None if own is None else list(own)
        is_known = j < len(encoder.engine.scale_shift)
        mean = float(f"{encoder.engine.scale_shift[j]:.4g}") if is_known else 1.0
        means[name] = int(mean) if mean.is_integer() else mean
    return levels, means


def address_of(host: str) -> str:
    """Return the address in the request, if it is a valid one.

    Examples
    --------
    >>> address_of("example.org:8000"), address_of("'; rm -rf *")
    ('http://example.org:8000', 'http://localhost:8000')
    """
    return f"http://{host if HOST.fullmatch(host) else 'localhost:8000'}"


def to_page(text: str) -> bytes:
    """Return a page as bytes; lone surrogates, which UTF-8 lacks, become character references."""
    return text.encode("utf-8", "xmlcharrefreplace")


# ---------------------------------------------------------------------- the page
def landing_page(seen: ModelView, address: str, *, needs_token: bool) -> str:
    """Return the page."""
    parts = [
        _section("At present", _numbers(seen)),
        _section("Labels", _labels(seen)) if not seen.are_numbers else "",
        _section("Features", _features(seen)) if seen.summary["n_features"] else "",
        _section("Drifts", _drifts(seen)) if "driftree_drifts_total" in seen.figures else "",
        _section("Ask it", "".join(_examples(seen, address, needs_token=needs_token))),
        _section("All endpoints", _endpoints(seen)),
    ]
    title = _text(f"{seen.name} · driftree")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f"<header>{_header(seen)}</header>\n<main>\n" + "\n".join(filter(None, parts)) + "\n</main>"
        "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _section(heading: str, body: str) -> str:
    return f"<section><h2>{heading}</h2>{body}</section>"


def _header(seen: ModelView) -> str:
    summary = seen.summary
    n_rows, n_features, n_labels = (
        summary["n_rows_seen"],
        summary["n_features"],
        len(summary["classes"]),
    )
    what = "a number" if seen.are_numbers else f"one of {_count(n_labels, 'label')}"
    if n_rows:
        told = f"It predicts {what} from {_count(n_features, 'feature')}, and has learnt "
        told += f"{_count(n_rows, 'row')} so far."
    else:
        told = "It has learnt nothing yet: send it rows, as shown below."
    mode = "It is read-only: it does not learn." if summary["read_only"] else "It keeps learning."
    has_report = seen.can_explain and n_rows
    report = ' <a href="/report">Its report</a> shows the rest.' if has_report else ""
    problem = f"<p><strong>{_text(seen.problem)}</strong></p>" if seen.problem else ""
    return (
        f'<p class="quiet">driftree serves a {_text(summary["kind"])}</p>'
        f"<h1>{_text(seen.name)}</h1><p>{told} {mode}{report}</p>{problem}"
    )


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _numbers(seen: ModelView) -> str:
    figures, summary = seen.figures, seen.summary
    shown = [
        ("rows learnt", f"{summary['n_rows_seen']:,}"),
        ("leaves", f"{summary['n_leaves']:,}"),
        ("changes of the tree", f"{seen.n_changes:,}"),
        ("drifts noticed", f"{figures.get('driftree_drifts_total', 0):,}"),
        ("memory", f"{summary['memory'] / 2**20:.1f} MiB"),
    ]
    if "driftree_recent_loss" in figures and summary["n_rows_seen"]:
        shown.insert(1, ("recent loss, nats", f"{figures['driftree_recent_loss']:.3g}"))
    return "<dl>" + "".join(f"<div><dt>{a}</dt><dd>{b}</dd></div>" for a, b in shown) + "</dl>"


def _labels(seen: ModelView) -> str:
    shares = seen.figures.get("driftree_label_share", {})
    rows = [
        f'<tr><td class="label">{_text(label)}</td><td><svg viewBox="0 0 100 1" '
        f'preserveAspectRatio="none" role="presentation"><rect width="100" height="1"/>'
        f'<rect class="share" width="{100 * share:.2f}" height="1"/></svg></td>'
        f'<td class="number">{share:.1%}</td></tr>'
        for label, share in list(shares.items())[:MOST_NAMES]
    ]
    labels = list(map(_text, seen.summary["classes"]))
    table = f"<table>{''.join(rows)}</table>" if rows else _chips(labels)
    note = '<p class="quiet">Their shares of the last rows.</p>' if rows else ""
    if seen.allowed is not None:
        note += f'<p class="quiet">Allowed: {_text(", ".join(map(str, seen.allowed)))}.</p>'
    return (table if labels else "<p>None so far.</p>") + note


def _features(seen: ModelView) -> str:
    kinds = {
        name: "number" if levels is None else _count(len(levels), "level")
        for name, levels in seen.levels.items()
    }
    chips = _chips([f"{_text(name)} <span>{kind}</span>" for name, kind in kinds.items()])
    n_others = seen.summary["n_features"] - len(kinds)
    if not n_others:
        return chips
    others = f"{_count(n_others, 'feature')} without a column of their own"
    return f'{chips}<p class="quiet">And {others}.</p>' if kinds else f"<p>{others}.</p>"


def _chips(texts: list[str]) -> str:
    """Return short texts as chips; if there are very many, the first."""
    more = len(texts) - MOST_NAMES
    shown = texts[:MOST_NAMES] + ([f"<span>and {more:,} more</span>"] if more > 0 else [])
    return f'<ul class="names">{"".join(f"<li>{text}</li>" for text in shown)}</ul>'


def _drifts(seen: ModelView) -> str:
    last = seen.drifts[: -MOST_DRIFTS - 1 : -1]
    items = "".join(f"<li>{_text(drift)}</li>" for drift in last)
    return f"<ul>{items}</ul>" if items else "<p>None so far.</p>"


def _examples(seen: ModelView, address: str, *, needs_token: bool) -> Iterable[str]:
    row, target = seen.sample, "targets" if seen.are_numbers else "labels"
    labels = seen.summary["classes"] or list(seen.allowed or ()) or ["granted"]
    asked: list[tuple[str, str, dict[str, Any]]] = []
    if seen.summary["n_rows_seen"]:
        asked.append(("Predict", "/predict", {"rows": [row]}))
    if not seen.summary["read_only"]:
        label = 1.5 if seen.are_numbers else labels[0]
        asked.append(("Learn", "/learn", {"rows": [row], target: [label]}))
    if seen.summary["n_rows_seen"] and seen.can_explain:
        wish = {"above": 1.5} if seen.are_numbers else {"target": labels[-1]}
        asked.append(("Why?", "/explain", {"row": row}))
        asked.append(("What would change it?", "/counterfactual", {"row": row, **wish}))
    token = ' -H "Authorization: Bearer $DRIFTREE_TOKEN"' if needs_token else ""
    for what, path, body in asked:
        data = shlex.quote(json.dumps(body))
        command = f"curl {address}{path}{token} \\\n  -H 'Content-Type: application/json' \\\n"
        yield f'<p class="quiet">{what}</p><pre>{_lines(f"{command}  -d {data}")}</pre>'


def _lines(text: str) -> str:
    return "\n".join(map(_text, text.split("\n")))


def _endpoints(seen: ModelView) -> str:
    rows = []
    for path, method, what in ENDPOINTS:
        if path == "/learn" and seen.summary["read_only"]:
            continue
        shown = f'<a href="{path}">{path}</a>' if method == "GET" else path
        rows.append(f"<tr><td><code>{method} {shown}</code></td><td>{what}</td></tr>")
    return f'<table class="all">{"".join(rows)}</table>'
