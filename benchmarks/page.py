"""Writes tables into the documentation, so that no figure there is typed by hand."""

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table; columns of numbers are set to the right."""
    rule = ["--:" if cell[:1] in set("+-0123456789") else "---" for cell in body[0]]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *body))


def write_table(name: str, heading: str, table: str, page: str = "speed") -> None:
    """Keep a table among the results, and put it in place of the first one under a heading."""
    tables = ROOT / "benchmarks" / "results" / page
    tables.mkdir(parents=True, exist_ok=True)
    (tables / f"{name}.md").write_text(table, encoding="utf-8")
    document = ROOT / "docs" / f"{page}.md"
    lines = document.read_text(encoding="utf-8").splitlines(keepends=True)
    if f"{heading}\n" not in lines:
        raise SystemExit(f"docs/{document.name} has no heading '{heading}': put it back")
    begin = lines.index(f"{heading}\n") + 1
    while begin < len(lines) and not lines[begin].startswith("|"):
        if lines[begin].startswith("#"):
            raise SystemExit(f"docs/{document.name} has no table under '{heading}': put one back")
        begin += 1
    end = begin
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    lines[begin:end] = table
    document.write_text("".join(lines), encoding="utf-8")
