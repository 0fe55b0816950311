"""The report of a forest: how its trees agree over time, what they count, and one tree at a time.

One HTML file without any script: the pictures are drawn here, and the trees are chosen by buttons
that the style sheet understands. Names, categories and labels are the user's text and escaped.
"""

from __future__ import annotations

import html
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from driftree.explain.text import export_text
from driftree.show.report_data import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftree.forests import DynamicModelForest
    from driftree.learn.forest_engine import Look

WIDTH, HEIGHT = 640, 200
LEFT, BOTTOM, TOP, RIGHT = 56, 28, 10, 90
COLOURS = ("#4269d0", "#b8860b", "#c0392b", "#2e8b57", "#8e5bb5", "#7a6a5d", "#3a8fb7", "#97643f")
MOST_EVENTS = 200
MOST_NAMES = 15
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto;
  max-width: 58rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .2rem .8rem .2rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 1px solid #999; }
pre { background: #f6f6f4; padding: .8rem; overflow-x: auto; font-size: 13px; line-height: 1.35; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; }
ol { padding-left: 1.2rem; } li { margin: .3rem 0; } p { max-width: 44rem; }
.tree { display: none; } label { padding: .2rem .7rem; border: 1px solid #999; cursor: pointer; }
input { position: absolute; opacity: 0; }
input:focus-visible + label { outline: 2px solid #4269d0; }
"""


def forest_page(model: DynamicModelForest, title: str | None) -> str:
    """Return the page."""
    forest = model._fitted
    looks, trees = model.looks_, model.trees_
    heading = f"{len(trees)} trees after {model.n_rows_seen_:,} rows" if title is None else title
    loss = "Loss per row, nats" if forest.core.leader.engine.has_labels else "Absolute error"
    names = [f"tree {i}" for i in range(len(trees))]
    chosen = "\n".join(
        f"#show{i}:checked ~ #tree{i} {{ display: block; }} "
        f"#show{i}:checked + label {{ background: #222; color: #fff; }}"
        for i in range(len(trees))
    )
    style = STYLE + chosen
    digest = b64encode(sha256(style.encode()).digest()).decode()
    parts = [
        f"<h1>{_text(heading)}</h1>",
        "<p>Each line is a tree; tree 0 is the plain one, the others also see pairs of features. "
        "Agreement is the share of the last rows (about 2,000) in which a tree predicted what all "
        "together did. The weights say what each tree counts.</p>",
        "<h2>Agreement</h2>",
        _chart(looks, [look.agreement for look in looks], names),
        "<h2>Weights</h2>",
        _chart(looks, [look.weights for look in looks], names),
        f"<h2>{loss}</h2>",
        _chart(looks, [look.losses for look in looks], [*names, "all together"]),
        "<h2>At the end</h2>",
        _members(model, looks[-1], trees),
        "<h2>What matters</h2>",
        _importance(model),
        "<h2>One tree at a time</h2>",
        _one_at_a_time(trees),
        "<h2>Changes</h2>",
        _changes(model.events_),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(heading)}</title>\n<style>{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _chart(looks: Sequence[Look], rows: Sequence[tuple[float, ...]], names: list[str]) -> str:
    """Draw a line for each column over the rows of the stream."""
    last = max(look.n_rows for look in looks)
    values = [value for row in rows for value in row]
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5

    def place(n_rows: int, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * n_rows / last
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)
        return f"{x:.1f},{y:.1f}"

    parts = []
    ends = sorted((-row, k) for k, row in enumerate(rows[-1]))
    spots: dict[int, float] = {}
    for at, (value, k) in enumerate(ends):  # names keep off each other
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high + value) / (high - low)
        spots[k] = y if at == 0 else max(y, spots[ends[at - 1][1]] + 13)
    for k, name in enumerate(names):
        colour = "#111" if name == "all together" else COLOURS[k % len(COLOURS)]
        points = " ".join(place(look.n_rows, row[k]) for look, row in zip(looks, rows, strict=True))
        wide = 2.5 if name == "all together" else 1.5
        if len(looks) > 1:
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{wide}"/>'
            )
        else:
            left, top = points.split(",")
            parts.append(f'<circle cx="{left}" cy="{top}" r="3" fill="{colour}"/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT + 8}" y="{spots[k] + 4:.1f}" fill="{colour}">{name}</text>'
        )
    for value in (low, high):
        top = place(0, value).split(",")[1]
        parts.append(f'<text x="{LEFT - 6}" y="{top}" dy="4" text-anchor="end">{value:.3g}</text>')
    bottom = HEIGHT - BOTTOM
    parts.append(f'<path d="M{LEFT},{TOP}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#999"/>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">row 0</text>')
    end = WIDTH - RIGHT
    parts.append(f'<text x="{end}" y="{HEIGHT - 8}" text-anchor="end">row {last:,}</text>')
    room = max(HEIGHT, max(spots.values()) + 10)
    return f'<svg viewBox="0 0 {WIDTH} {room:.0f}" role="img">{"".join(parts)}</svg>'


def _members(model: DynamicModelForest, look: Look, trees: list[Any]) -> str:
    head = "<tr><th>tree</th><th>weight</th><th>agreement</th><th>loss</th><th>leaves</th></tr>"
    rows = [
        f"<tr><td>{i}</td><td>{look.weights[i]:.2f}</td><td>{look.agreement[i]:.1%}</td>"
        f"<td>{look.losses[i]:.4g}</td><td>{tree.n_leaves_}</td></tr>"
        for i, tree in enumerate(trees)
    ]
    rows.append(
        f"<tr><td>all together</td><td></td><td></td><td>{look.losses[-1]:.4g}</td>"
        f"<td>{model.n_leaves_}</td></tr>"
    )
    return f"<table>{head}{''.join(rows)}</table>"


def _importance(model: DynamicModelForest) -> str:
    found = model.feature_importance()
    rows = [
        f"<tr><td>{_text(name)}</td><td>{one.earned:.3g}</td><td>{one.weight:.3g}</td></tr>"
        for name, one in list(found.items())[:MOST_NAMES]
    ]
    head = "<tr><th>feature or pair</th><th>earned by splits</th><th>weight in leaves</th></tr>"
    more = f"<p>{len(found) - MOST_NAMES} more.</p>" if len(found) > MOST_NAMES else ""
    return f"<table>{head}{''.join(rows)}</table>{more}"


def _one_at_a_time(trees: list[Any]) -> str:
    buttons = "".join(
        f'<input type="radio" name="tree" id="show{i}"{" checked" if i == 0 else ""}>'
        f'<label for="show{i}">tree {i}</label>\n'
        for i in range(len(trees))
    )
    texts = "".join(
        f'<div class="tree" id="tree{i}"><pre>{_text_lines(export_text(tree, max_weights=5))}</pre>'
        "</div>\n"
        for i, tree in enumerate(trees)
    )
    return f"<div>{buttons}{texts}</div>"


def _text_lines(text: str) -> str:
    return "\n".join(map(_text, text.splitlines()))


def _changes(events: list[Any]) -> str:
    shown = events[-MOST_EVENTS:]
    before = len(events) - len(shown)
    note = f"<p>The last {len(shown)}; {before:,} came before.</p>" if before else ""
    items = "".join(f"<li>{_text(event)}</li>" for event in shown)
    return f"{note}<ol>{items}</ol>" if shown else "<p>None so far.</p>"
