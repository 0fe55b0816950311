"""The report: the history of a model as one self-contained HTML file.

Its contents are gathered in `report_data`; the files in `page` draw it. Names, categories and
labels come from the user: they are sent as JSON, and the page inserts them as text nodes, never as
markup.
"""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftree.forests import DynamicModelForest
from driftree.learn.storage.atomic import replace_text
from driftree.show.forest_report import forest_body
from driftree.show.report_data import gather, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from driftree.evaluate.records import Record
    from driftree.show.scores import Drifts
    from driftree.show.style import AnyTree

SCRIPTS = ("data", "replay", "timeline", "tree", "reading", "tables", "stream", "main")
UNFIT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
# Nothing may be loaded; only the page's own script and style are allowed.
POLICY = (
    "default-src 'none'; script-src {script}; style-src '{style}'; base-uri 'none'; "
    "form-action 'none'"
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
    body, style = forest_body(model, records)
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
