"""Files that take the place of others: whose they are, who may read them, what errors name."""

import errno
import os
import stat
import struct

import pytest

from driftree.learn.storage import atomic

OTHER = 12345  # a user and a group that nobody is
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
NO_ID = 0xFFFFFFFF
# Owner rw, user OTHER r, owning group nothing, mask r, others nothing: the mode shows 0640.
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in [(1, 6, NO_ID), (2, 4, OTHER), (4, 0, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID)]
)


def make(tmp_path, mode=0o640, owner=-1, group=-1):
    path = tmp_path / "model.dmt"
    path.write_bytes(b"old")
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def refuse(*_arguments, **_options):
    raise PermissionError(errno.EPERM, "no")


def look(path):
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


# ---------------------------------------------------------------------- owner, group, permissions
@as_root
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o4755, 0o2755, 0o6711])
def test_a_file_keeps_its_owner_group_and_permissions(tmp_path, mode):
    path = make(tmp_path, mode, OTHER, OTHER + 1)
    before = look(path)
    atomic.replace_file(path, [b"new"])
    assert look(path) == before == (OTHER, OTHER + 1, mode)
    assert path.read_bytes() == b"new"


@as_root
@pytest.mark.parametrize(
    ("mode", "kept"),
    [(0o600, 0o600), (0o660, 0o600), (0o664, 0o644), (0o6775, 0o755), (0o4711, 0o711)],
)
def test_where_the_owner_cannot_be_kept_nobody_gains_anything(tmp_path, monkeypatch, mode, kept):
    """Set-id bits are for the old owner, the group's permissions for the old group."""
    path = make(tmp_path, mode, OTHER, OTHER)
    monkeypatch.setattr(atomic.os, "fchown", refuse)
    atomic.replace_file(path, [b"new"])
    assert look(path) == (os.geteuid(), os.getegid(), kept)


@as_root
def test_of_owner_and_group_the_one_that_can_be_kept_is(tmp_path, monkeypatch):
    path = make(tmp_path, 0o6770, OTHER, OTHER)
    fchown = os.fchown
    monkeypatch.setattr(
        atomic.os, "fchown", lambda fd, u, g: refuse() if u >= 0 else fchown(fd, u, g)
    )
    atomic.replace_file(path, [b"new"])
    assert look(path) == (os.geteuid(), OTHER, 0o2770)


@as_root
def test_nobody_else_may_read_before_the_owner_is_right(tmp_path, monkeypatch):
    path = make(tmp_path, 0o666, OTHER, OTHER)
    seen = []
    fchown = os.fchown

    def note(fd, owner, group):
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        fchown(fd, owner, group)

    monkeypatch.setattr(atomic.os, "fchown", note)
    atomic.replace_file(path, [b"new"])
    assert seen == [0o600, 0o600]


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_access_list_is_kept_or_gives_nothing_to_the_group(tmp_path, monkeypatch, is_kept):
    """The group's bits are the list's mask: without the list, they would be the group's."""
    path = make(tmp_path)
    try:
        os.setxattr(path, atomic.ACL, ACL)
    except (OSError, AttributeError):
        pytest.skip("no access lists here")
    assert look(path)[2] == 0o640
    if not is_kept:
        monkeypatch.setattr(atomic.os, "setxattr", refuse)
    atomic.replace_file(path, [b"new"])
    if is_kept:
        assert os.getxattr(path, atomic.ACL) == ACL
        assert look(path)[2] == 0o640
    else:
        assert look(path)[2] == 0o600


# ---------------------------------------------------------------------- errors
@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("name", ["open", "fsync", "replace", "fchmod"])
def test_an_error_names_the_path_that_was_given(tmp_path, monkeypatch, name, number):
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    act = getattr(os, name)

    def fail(first, *arguments, **options):
        if name == "open" and "dir_fd" not in options:
            return act(first, *arguments, **options)
        raise OSError(number, os.strerror(number), None if name == "fsync" else first)

    monkeypatch.setattr(atomic.os, name, fail)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        atomic.replace_file("./model.dmt", [b"new"])
    monkeypatch.setattr(atomic.os, name, act)
    assert caught.value.filename == "./model.dmt"
    assert caught.value.errno == number
    assert os.listdir(tmp_path) == ["model.dmt"]


def test_a_folder_that_cannot_be_opened_is_an_error_that_names_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.os, "open", refuse)
    with pytest.raises(PermissionError) as caught:
        atomic.replace_file(tmp_path / "model.dmt", [b"new"])
    assert caught.value.filename == str(tmp_path / "model.dmt")
