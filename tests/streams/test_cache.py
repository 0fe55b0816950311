"""The cache folder."""

import sys

import pytest

from driftree.streams.cache import cache_folder


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "home/.cache/driftree"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/driftree"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/driftree"),
        ("darwin", {}, "home/Library/Caches/driftree"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/driftree"),
        ("linux", {"DRIFTREE_CACHE": "~/c"}, "home/c"),
    ],
)
def test_the_cache_is_where_the_platform_has_it(monkeypatch, tmp_path, platform, variables, folder):
    for name in ("DRIFTREE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == tmp_path / folder
