"""The report: the history of a tree, or of a forest, as one self-contained HTML file.

The contents of a tree's page are gathered in `report_data`; the files in `page` draw it. Names,
categories and labels come from the user: they are sent as JSON, and the page inserts them as text
nodes, never as markup. The page of a forest shows agreement and weights of its trees over time, and
each tree. It has no script: the plots are SVG, the trees are selected by CSS alone, and text from
the user is escaped.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftree.evaluate.records import show_number
from driftree.explain.changes import can_tell
from driftree.explain.text import export_text
from driftree.forests import DynamicModelForest
from driftree.learn.storage.atomic import replace_text
from driftree.show.report_data import compare_learners, gather, over_stream, visible
from driftree.show.scores import OF_LABELS, OF_NUMBERS, more_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from driftree.evaluate.records import Record
    from driftree.learn.forest_engine import Look
    from driftree.show.scores import Drifts
    from driftree.show.style import AnyTree

SCRIPTS = ("data", "replay", "timeline", "tree", "reading", "tables", "stream", "main")
UNFIT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
# Nothing may be loaded; only the page's own script and style are allowed.
POLICY = (
    "default-src 'none'; script-src {script}; style-src '{style}'; base-uri 'none'; "
    "form-action 'none'"
)
WIDTH, HEIGHT = 1000, 100  # of a plot; it is stretched to the space available
N_COLOURS = 6  # of the trees, besides that of the forest
DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 2", "1 3", "10 2")
MOST_EVENTS = 200
MOST_NAMES = 15
TOGETHER = "all together"
IMPORTANCE_WORDS = (
    "Earned: loss that its splits save, in nats per 1,000 rows. Weight: how much it changes the "
    "prediction inside the leaves, on average."
)
DRIFTS_WORDS = "When the rule behind the rows changed, as detected by tree 0; the latest first."
SCORES_WORDS = (
    "Each row was predicted before it was learnt. Means ± standard deviations over batches. "
    "Splits: "
    "inner nodes of all trees."
)


def report(
    model: AnyTree | DynamicModelForest,
    records: Iterable[Record] | None = None,
    path: str | os.PathLike[str] = "report.html",
    *,
    title: str | None = None,
    drifts: Drifts = (),
    settings: Mapping[str, object] | None = None,
) -> Path:
    """Write what a model has learnt, why it changed and how well it did to one HTML file.

    The page shows the tree at any time of the stream, why each change was made, and the model of
    each leaf. It needs no network and no other file, and can be printed.

    Parameters
    ----------
    model : a Dynamic Model Tree or forest, classifier or regressor
        A model that has learnt something. Without its history (`keep_history=False`) the page shows
        the present tree only. For a forest it shows the agreement of the trees over time, and each
        tree; `drifts` and `settings` are for trees.
    records : iterable of Record, optional
        Results of an evaluation, for instance by `prequential`. The first learner in them is the
        model; others are compared with it.
    path : path, default="report.html"
        Where to write; an existing file is overwritten, and missing folders are created.
    title : str, optional
        Heading of the page.
    drifts : sequence of int or (int, int), default=()
        Rows at which the stream is known to change, or spans in which it does; those beyond the end
        of the stream are left out.
    settings : mapping, optional
        Settings of the run, such as its source and the rows per batch: shown with the model's
        parameters, to reproduce the tree.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> file = report(model, path=Path(tempfile.mkdtemp()) / "xor.html", title="Exclusive or")
    >>> "<h1>Exclusive or</h1>" in file.read_text(encoding="utf-8")
    True
    """
    if isinstance(records, (str, os.PathLike)):
        raise TypeError(
            f"records must be records of a run, got {records!r}: write path={records!r}"
        )
    page = report_page(model, records, title=title, drifts=drifts, settings=settings)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # A lone surrogate, as broken text may contain, is not valid in UTF-8: it becomes a reference.
    replace_text(file, page)
    return file


def report_page(
    model: AnyTree | DynamicModelForest,
    records: Iterable[Record] | None = None,
    *,
    title: str | None = None,
    drifts: Drifts = (),
    settings: Mapping[str, object] | None = None,
) -> str:
    """Return what `report` writes."""
    if isinstance(model, DynamicModelForest):
        return _forest_page(model, list(records or ()), title)
    data = gather(model, None if records is None else list(records), drifts, settings)
    return _page(data, f"A tree after {model.n_rows_seen_:,} rows" if title is None else str(title))


def _page(data: dict[str, Any], title: str) -> str:
    script = '"use strict";\n' + "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    return _fill(
        "page.html",
        **_head(title, f"'{_fingerprint(script)}'"),
        script=script,
        data=to_json(data),
    )


def _forest_page(model: DynamicModelForest, records: list[Record], title: str | None) -> str:
    """Return the page of a forest, which has no script."""
    n_trees, n_rows = len(model.trees_), model.n_rows_seen_
    heading = f"{n_trees} trees after {n_rows:,} rows" if title is None else str(title)
    body, style = _forest_body(model, records)
    return _fill("forest.html", **_head(heading, "'none'", style), body=body)


def _head(title: str, script: str, more_style: str = "") -> dict[str, str]:
    """Return the title and the head of a page; `script` is the policy for scripts."""
    style = _read("page.css") + more_style
    policy = POLICY.format(script=script, style=_fingerprint(style))
    name = html.escape(visible(title))
    return {"title": name, "head": _fill("head.html", title=name, policy=policy, style=style)}


def _read(name: str) -> str:
    return (files("driftree.show") / "page" / name).read_text(encoding="utf-8")


def _fill(name: str, **parts: str) -> str:
    """Return a template with its parts filled in; placeholders inside of these are kept."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read(name))


def _fingerprint(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def to_json(data: object) -> str:
    r"""Return JSON that is safe between script tags: without <, > and &.

    Line separators and lone surrogates are escaped, too.

    Examples
    --------
    >>> print(to_json({"label": "</script>"}))
    {"label":"\u003c/script\u003e"}
    """
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return UNFIT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# ---------------------------------------------------------------------- the page of a forest
def _forest_body(model: DynamicModelForest, records: list[Record]) -> tuple[str, str]:
    """Return the page's body, and its own CSS rules."""
    forest = model._fitted
    looks, trees = model.looks_, model.trees_
    has_labels = forest.core.leader.engine.has_labels
    loss = "Loss per row, in nats" if has_labels else "Absolute error"
    names = [f"tree {i}" for i in range(len(trees))]
    style = "\n".join(
        f"#show{i}:checked ~ #member{i} {{ display: block; }}" for i in range(len(trees))
    )
    charts = "".join(
        f"<div><h3>{title}</h3>{_chart(looks, rows, lines)}</div>"
        for title, rows, lines in (
            ("Agreement", [look.agreement for look in looks], names),
            ("Weights", [look.weights for look in looks], names),
            (loss, [look.losses for look in looks], [*names, TOGETHER]),
        )
    )
    parts = [
        (
            "Over time",
            _how_words(has_labels=has_labels),
            f'{_legend(names)}<div class="charts">{charts}</div>',
        ),
        ("At the end", "", _members(model, looks[-1], trees)),
        ("What matters", IMPORTANCE_WORDS, _importance(model)),
        ("One tree at a time", "", _one_at_a_time(trees)),
        ("Changes", _changes_words(model.events_), _sentences(model.events_)),
    ]
    if found := model.drifts() if can_tell(model) else []:
        parts.insert(1, ("Drifts", DRIFTS_WORDS, _sentences(found)))
    parts = [*_how_well(records, has_labels=has_labels), *parts] if records else parts
    sections = "\n".join(
        f'<section><div class="heading"><h2>{title}</h2><p class="quiet">{words}</p></div>'
        f"{inside}</section>"
        for title, words, inside in parts
    )
    return f"<main>{sections}</main>", style


def _how_words(*, has_labels: bool) -> str:
    """Describe the lines."""
    same = (
        "a tree predicted the same as the forest"
        if has_labels
        else "a tree predicted nearly the same as the forest: within its usual error"
    )
    return (
        "Each line is a tree; tree 0 is the plain one, the others also see pairs of features. "
        f"Agreement is the share of the last rows (about 2,000) in which {same}. The prediction "
        "of each tree counts with its weight."
    )


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


# ---------------------------------------------------------------------- a forest's pictures
def _line(place: int, name: str) -> str:
    """Return CSS class and dashes of a tree's line."""
    if name == TOGETHER:
        return 'class="together colour0"'
    dashes = DASHES[(place + place // N_COLOURS) % len(DASHES)]
    return f'class="colour{place % N_COLOURS + 1}" stroke-dasharray="{dashes}"'


def _legend(names: Sequence[str]) -> str:
    samples = "".join(
        '<span><svg class="sample" width="28" height="10" viewBox="0 0 28 10" aria-hidden="true">'
        f'<line {_line(place, name)} stroke-width="2" x1="1" '
        f'x2="27" y1="5" y2="5"/></svg>{name}</span>'
        for place, name in enumerate([*names, TOGETHER])
    )
    return f'<div class="legend">{samples}</div>'


def _chart(looks: Sequence[Look], rows: Sequence[tuple[float, ...]], names: Sequence[str]) -> str:
    """Draw a line for each column over the rows of the stream, without NaN."""
    last = max(look.n_rows for look in looks)
    values = [value for row in rows for value in row if not math.isnan(value)]
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5

    def place(look: Look, value: float) -> str:
        y = 2 + (HEIGHT - 4) * (high - value) / (high - low)
        return f"{WIDTH * look.n_rows / last:.0f},{y:.1f}"

    def points(k: int) -> str:
        known = [
            place(look, row[k])
            for look, row in zip(looks, rows, strict=True)
            if not math.isnan(row[k])
        ]
        return " ".join([*(known[:1] if len(looks) > 1 else [f"0,{HEIGHT / 2}"]), *known])

    lines = "".join(
        f'<polyline {_line(k, name)} points="{points(k)}"/>' for k, name in enumerate(names)
    )
    ends = ", ".join(
        f"{name} {_known(value, '.3g')}" for name, value in zip(names, rows[-1], strict=True)
    )
    return (
        f'<div class="frame"><div class="heights"><span>{high:.3g}</span><span>{low:.3g}</span>'
        f'</div><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="At the end: {ends}">{lines}</svg>'
        f'<div class="rows"><span>row 0</span><span>row {last:,}</span></div></div>'
    )


# ---------------------------------------------------------------------- a forest's tables
def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Return a table with names in the first column, and numbers in the others."""
    head = "".join(
        f'<th scope="col"{" class=number" if place else ""}>{name}</th>'
        for place, name in enumerate(heads)
    )
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(
            f'<td class="number" data-head="{name}">{cell}</td>'
            for name, cell in zip(heads[1:], row[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><caption class="unseen">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _how_well(records: list[Record], *, has_labels: bool) -> list[tuple[str, str, str]]:
    """Return the scores of the learners, and recall and precision of the first by label."""
    metrics = OF_LABELS if has_labels else OF_NUMBERS
    shown = (*metrics, *more_metrics(metrics))
    score = _score if has_labels else _figure
    rows = [
        (
            _text(row["title"]),
            " ± ".join(map(score, row[shown[0].field])),
            *(score(row[metric.field]) for metric in shown[1:]),
            *(_figure(row[name]) for name in ("splits", "parameters", "seconds")),
        )
        for row in compare_learners(records, metrics)
    ]
    heads = ("learner", *(one.title for one in shown), "splits", "parameters", "seconds")
    scores = "How well", SCORES_WORDS, _table(heads, rows, "Learners on the same rows")
    mix = over_stream(records)["label_mix"]
    if mix is None:
        return [scores]
    labels = [
        (_text(name), f"{share:.0%}", *map(_score, scores)) for name, share, *scores in mix["found"]
    ]
    found = _table(("label", "share", "recall", "precision", "F1"), labels, "Labels of all rows")
    majority = f"{mix['majority']:.1%}"
    words = f"Always predicting the most frequent label so far has an accuracy of {majority}."
    return [scores, ("Labels", words, found)]


def _score(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def _figure(number: float | None) -> str:
    return "-" if number is None else show_number(number)


def _known(number: float, form: str) -> str:
    """Return a number; a tree that has just replaced another has none yet."""
    return "-" if math.isnan(number) else f"{number:{form}}"


def _members(model: DynamicModelForest, look: Look, trees: list[Any]) -> str:
    rows = [
        (
            f"tree {i}",
            f"{look.weights[i]:.2f}",
            _known(look.agreement[i], ".1%"),
            _known(look.losses[i], ".4g"),
            f"{tree.n_leaves_}",
        )
        for i, tree in enumerate(trees)
    ]
    rows.append((TOGETHER, "", "", f"{look.losses[-1]:.4g}", f"{model.n_leaves_}"))
    return _table(("tree", "weight", "agreement", "loss", "leaves"), rows, "The trees at the end")


def _importance(model: DynamicModelForest) -> str:
    found = model.feature_importance()
    rows = [
        (_text(name), f"{one.earned:.3g}", f"{one.weight:.3g}")
        for name, one in list(found.items())[:MOST_NAMES]
    ]
    more = len(found) - MOST_NAMES
    note = f'<p class="quiet">{more} more.</p>' if more > 0 else ""
    heads = ("feature or pair", "earned by splits", "weight in leaves")
    return _table(heads, rows, "Features by what they contribute") + note


def _one_at_a_time(trees: list[Any]) -> str:
    buttons = "".join(
        f'<input class="choice" type="radio" name="tree" id="show{i}"'
        f'{" checked" if i == 0 else ""}><label for="show{i}">tree {i}</label>\n'
        for i in range(len(trees))
    )
    texts = "".join(
        f'<div class="member" id="member{i}"><pre class="code" tabindex="0">'
        f"{_text_lines(export_text(tree, max_weights=5))}</pre></div>\n"
        for i, tree in enumerate(trees)
    )
    return f"<div>{buttons}{texts}</div>"


def _text_lines(text: str) -> str:
    return "\n".join(map(_text, text.splitlines()))


def _changes_words(events: list[Any]) -> str:
    before = len(events) - MOST_EVENTS
    return (
        f"The last {MOST_EVENTS}, the latest first; {before:,} before."
        if before > 0
        else "The latest first."
        if events
        else "None so far."
    )


def _sentences(events: Sequence[object]) -> str:
    items = "".join(f"<li>{_text(event)}</li>" for event in reversed(events[-MOST_EVENTS:]))
    return f'<ol class="changes sentences" tabindex="0">{items}</ol>' if items else ""
