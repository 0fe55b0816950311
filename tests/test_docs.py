"""What the documentation mentions exists, its figures are those in the files, its links lead on."""

import ast
import json
import pkgutil
import re
import runpy
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [f"docs/{page.name}" for page in sorted(ROOT.glob("docs/*.md"))]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *PAGES]
REFERENCE = re.compile(
    r"`((?:cli|learn|evaluate|explain|export|paper|scale|serve|show|streams|kernels)/\w+\.\w+)(?:::([\w:.]+))?`"
)


def python_names(path):
    """Qualified names of all functions, classes and assigned names of a module."""
    names, rest = set(), [("", ast.parse(path.read_text()))]
    while rest:
        prefix, parent = rest.pop()
        for item in ast.iter_child_nodes(parent):
            if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
                names.add(prefix + item.name)
                rest.append((f"{prefix}{item.name}.", item))
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", 0)]
            names.update(prefix + t.id for t in targets if isinstance(t, ast.Name))
    return names


def is_defined(path, name):
    if path.suffix == ".py":
        return name in python_names(path)
    word = name.split("::")[-1]
    return re.search(rf"\b{word}\s*[({{]|(?:struct|class) {word}\b", path.read_text()) is not None


@pytest.mark.parametrize("document", DOCUMENTS)
def test_references_exist(document):
    text = (ROOT / document).read_text()
    for file, name in REFERENCE.findall(text):
        path = ROOT / "src" / ("" if file.startswith("kernels") else "driftree") / file
        assert path.exists(), f"{document} speaks of {file}"
        assert not name or is_defined(path, name), f"{document} speaks of {file}::{name}"
    cpp = "".join(p.read_text() for p in (ROOT / "src" / "kernels").glob("*.[ch]pp"))
    for name in re.findall(r"`[A-Z]\w+::(\w+)`", text):
        assert re.search(rf"\b{name}\(", cpp), f"{document} speaks of {name}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_public_names_exist(document):
    for name in re.findall(r"`(driftree(?:\.\w+)+)[`(]", (ROOT / document).read_text()):
        pkgutil.resolve_name(name)  # raises, and says what is missing


def test_the_tour_shows_every_module_in_its_room():
    rooms, room = {"driftree": ""}, "driftree"
    for line in (ROOT / "docs/tour.md").read_text().split("```")[1].splitlines():
        heading = re.match(r"(?:  |src/)(?!driftree/)(\w+)/", line)
        room = heading[1] if heading else room
        rooms[room] = rooms.get(room, "") + line + "\n"
    source = ROOT / "src"
    kernels = [path for path in (source / "kernels").iterdir() if path.suffix in (".hpp", ".cpp")]
    for path in [*(source / "driftree").rglob("*.py"), *kernels]:
        folders = path.relative_to(source).parts[:-1]
        names = rf"(?<!\w){path.stem}\.({path.suffix[1:]}\b|\*)"
        is_shown = path.name == "__init__.py" or re.search(names, rooms[folders[:2][-1]])
        assert is_shown, f"docs/tour.md does not show {path.name} in {folders[:2][-1]}"


def test_modules_of_one_name_are_of_one_idea():
    modules = (ROOT / "src/driftree").rglob("*.py")
    counts = Counter(path.stem for path in modules if path.stem != "__init__")
    twice = {name for name, count in counts.items() if count > 1}
    said = re.search(
        r"Only these modules share a name.*?\.\n", (ROOT / "docs/tour.md").read_text(), re.S
    )
    assert set(re.findall(r"`(\w+)`", said[0])) == twice


def test_classes_of_one_name_are_of_one_idea():
    is_schema = "serve/responses.py"  # of answers: named as what they describe
    paths = [path for path in (ROOT / "src/driftree").rglob("*.py") if not path.match(is_schema)]
    classes = [re.findall(r"^class (\w+)", path.read_text(), re.M) for path in paths]
    counts = Counter(name for names in classes for name in names)
    twice = {name for name, count in counts.items() if count > 1}
    # A bend and a split: as an event, and as a part of what is exported.
    assert {name for name in twice if name not in ("Bend", "Split")} == set()


def test_the_readme_is_one_page_and_a_half():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("document", DOCUMENTS)
def test_rows_of_tables_are_on_lines_of_their_own(document):
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.S | re.M)
    for line in text.splitlines():
        assert not re.search(r"\S.*\| ?\| ?:?-{3}", line), f"{document} has a broken table: {line}"
        if line.startswith("|"):
            assert line.endswith("|"), f"{document} has a broken table: {line}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_nothing_is_left_to_fill_in(document):
    assert "<!--" not in (ROOT / document).read_text()


def test_the_papers_tables_are_those_that_were_printed():
    page = (ROOT / "docs" / "paper.md").read_text()
    tables = sorted((ROOT / "benchmarks" / "results" / "paper").glob("table*.md"))
    assert len(tables) == 6
    for table in tables:
        assert table.read_text().strip() in page, f"docs/paper.md does not have {table.name}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if link.startswith("http"):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), f"{document} links to {link}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in anchors, f"{document} links to {link}"


def test_the_picture_in_the_readme_is_of_a_run_of_today(tmp_path):
    """If this fails, the tree of the demo has changed: run make picture, and look at it."""
    own = runpy.run_path(str(ROOT / "docs" / "report_picture.py"))
    told = json.loads(own["FIGURES"].read_text(encoding="utf-8"))
    assert told["picture"] == sha256(own["PICTURE"].read_bytes()).hexdigest()
    own["write_demo"](tmp_path / "demo.html", alone=True)
    assert own["headline"](tmp_path / "demo.html") == told["figures"]
