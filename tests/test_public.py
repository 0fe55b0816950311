"""Whatever public calls return has a type that can be imported from a public place."""

import ast
import functools
import importlib
import inspect
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import driftree

PUBLIC = (
    "driftree",
    *(
        f"driftree.{room}"
        for room in ("evaluate", "explain", "export", "paper", "scale", "show", "streams")
    ),
)


@functools.cache
def names_in(module):
    """The library's own names that a module's annotations may use, imported or not when it runs."""
    parts = ast.walk(ast.parse(inspect.getsource(importlib.import_module(module))))
    found = {}
    for part in parts:
        if isinstance(part, ast.ImportFrom) and (part.module or "").startswith("driftree"):
            found |= {alias.asname or alias.name: (part.module, alias.name) for alias in part.names}
        if isinstance(part, ast.ClassDef):
            found[part.name] = (module, part.name)
    return found


@functools.cache
def public_things():
    rooms = [importlib.import_module(name) for name in PUBLIC]
    names = {room: driftree.__all__ if room is driftree else vars(room) for room in rooms}
    return [
        thing
        for room, known in names.items()
        for thing in (getattr(room, name) for name in known if not name.startswith("_"))
        if callable(thing) and getattr(thing, "__module__", "").startswith("driftree.")
    ]


def annotations(thing):
    """What a function returns, or an instance gives: its fields, properties and methods."""
    if not inspect.isclass(thing):
        yield thing.__name__, thing, getattr(thing, "__annotations__", {}).get("return")
        return
    for base in thing.__mro__:
        if not base.__module__.startswith("driftree."):
            continue
        for name, text in vars(base).get("__annotations__", {}).items():
            if not name.startswith("_"):
                yield f"{thing.__name__}.{name}", base, text
        for name, member in vars(base).items():
            call = getattr(member, "fget", None) or getattr(member, "__func__", member)
            call = inspect.unwrap(call) if callable(call) else None
            if not name.startswith("_") and inspect.isfunction(call):
                yield f"{thing.__name__}.{name}", base, call.__annotations__.get("return")


def returned(thing):
    """The library's own classes that are named there; nobody makes an instance of a protocol."""
    for where, owner, text in annotations(thing):
        for word in re.findall(r"[A-Za-z_]\w*", str(text)):
            module, name = names_in(owner.__module__).get(word, (None, None))
            kind = module and getattr(importlib.import_module(module), name)
            if inspect.isclass(kind) and not getattr(kind, "_is_protocol", False):
                yield where, kind
            elif kind is not None and not inspect.isclass(kind):  # a union, or a choice of words
                parts = getattr(kind, "__args__", ())
                modules = [getattr(one, "__module__", "") or "" for one in parts]
                ours = (name.startswith("driftree.") for name in modules)
                yield from ((where, one) for one, own in zip(parts, ours, strict=True) if own)


@pytest.mark.parametrize("thing", public_things(), ids=lambda thing: thing.__name__)
def test_the_types_of_what_is_returned_are_public(thing):
    public = public_things()
    hidden = {
        f"{where}: {kind.__module__}.{kind.__name__}"
        for where, kind in returned(thing)
        if kind not in public
    }
    assert not hidden


def test_this_finds_something():
    found = {kind.__name__ for thing in public_things() for _, kind in returned(thing)}
    assert {"Event", "Condition", "Explanation", "Counterfactual", "Structure", "Record"} <= found


def test_messages_about_extras_name_packages_that_can_be_installed():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    known = {re.match(r"[\w-]+", one)[0] for some in extras for one in some}
    texts = [path.read_text() for path in (root / "src").rglob("*.py")]
    named = [
        re.match(r"[\w-]*", word)[0]
        for text in texts
        for command in re.findall(r"pip install ([^\"`{,]+)", text)
        for word in shlex.split(command)
    ]
    assert set(named) >= {"fastapi", "onnx", "ray"}
    assert set(named) <= known  # not driftree's own extras: from a checkout there are none
