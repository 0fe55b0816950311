"""Pages of the site that are made from files outside docs, and links between them.

A hook of MkDocs (mkdocs.yml). The README is the home page; changelog, contributing and security are
pages, too; the API page lists what `driftree` and its rooms export; the gallery shows every picture
in docs/pictures.
"""

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
ASSETS = {
    "CITATION.cff": "CITATION.cff",
    "benchmarks/results/paper/figure3.png": "paper/figure3.png",
    "benchmarks/results/paper/figure4.png": "paper/figure4.png",
}
ROOMS = ["evaluate", "explain", "export", "paper", "scale", "show", "streams"]
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((?:docs/)?(pictures/[^)\s]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and pictures from elsewhere."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    for source, name in ASSETS.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_bytes()))
    files.append(File.generated(config, "api/index.md", content=list_api()))
    for room in ROOMS:
        files.append(File.generated(config, f"api/{room}.md", content=list_api(room)))
    files.append(File.generated(config, "gallery.md", content=list_pictures()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where the pages are on the site."""
    del config, files
    places = {**PAGES, **ASSETS}
    sources = {name: source for source, name in PAGES.items()}
    folder = (ROOT / sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")).parent

    def lead(found: re.Match[str]) -> str:
        text, link, anchor = found.groups(default="")
        target = (folder / link).resolve()
        if "://" in link or not target.is_relative_to(ROOT):
            return found.group()
        path = target.relative_to(ROOT).as_posix()
        if path in places:
            return f"[{text}]({places[path]}{anchor})"
        if path.startswith("docs/"):
            return f"[{text}]({path.removeprefix('docs/')}{anchor})"
        return f"`{path}`"  # a folder of the repository

    return LINK.sub(lead, markdown)


def list_api(room: str | None = None) -> str:
    """Return the page of what can be imported from `driftree`, or from one of its rooms."""
    package = f"driftree.{room}" if room else "driftree"
    names = exported(f"{room}/__init__.py" if room else "__init__.py")
    first = [name for name in names if name.startswith("DynamicModel")]
    lines = [f"# {package}", ""]
    for name in [*first, *(name for name in names if name not in first)]:
        lines += [
            f"::: {package}.{name}",
            "    options:",
            f"      inherited_members: {not room}",
            "",
        ]
    return "\n".join(lines)


def exported(file: str) -> list[str]:
    """Return names that a package exports: `from driftree.a import b as b`."""
    tree = ast.parse((ROOT / "src" / "driftree" / file).read_text())
    return [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.count(".")
        for alias in node.names
        if alias.asname == alias.name and not alias.name.startswith("_")
    ]


def list_pictures() -> str:
    """Return the page that shows every picture of the documentation, and where it is from."""
    lines = [
        "# Gallery",
        "",
        "Each picture is made by a command or an example of the page that shows it.",
        "",
    ]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = PAGES.get(page.name, page.name)
        for caption, picture in PICTURE.findall(page.read_text()):
            lines += [
                f"## {caption}",
                "",
                f"![{caption}]({picture})",
                "",
                f"From [{name}]({name}).",
                "",
            ]
    return "\n".join(lines)
