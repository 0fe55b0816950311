"""Files that take the place of others: whose they are, who may read them, what errors name."""

import errno
import os
import re
import stat
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import driftree
from driftree.learn.storage import atomic, locks

OTHER = 12345  # a user and a group that nobody is
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
NO_ID = 0xFFFFFFFF
# Owner rw, user OTHER r, owning group nothing, mask r, others nothing: the mode shows 0640.
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in [(1, 6, NO_ID), (2, 4, OTHER), (4, 0, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID)]
)


def test_nobody_else_gives_files_their_names_or_locks_them():
    rename, lock = re.compile(r"os\.(replace|rename)\b|\.rename\("), re.compile(r"\bflock\b")
    texts = [(path.name, path.read_text()) for path in Path(driftree.__file__).parent.rglob("*.py")]
    assert [name for name, text in texts if rename.search(text)] == ["atomic.py"]
    assert [name for name, text in texts if lock.search(text)] == ["locks.py"]


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


# ---------------------------------------------------------------------- blocks
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_failed_block_leaves_the_old_file(tmp_path, is_alone):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write(content):
        with atomic.whole_file(path, is_alone=is_alone) as file:
            file.write(content)
            if content == b"half":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(b"half")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])
    write(b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"new", [path])


@pytest.mark.parametrize("is_link", [False, True])
def test_who_is_alone_removes_what_a_killed_process_left(tmp_path, is_link):
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    left = path.with_name(".driftree-a.tmp")
    (tmp_path / "other").write_bytes(b"not ours")
    if is_link:
        left.symlink_to(tmp_path / "other")
    else:
        left.write_bytes(b"much that was left")
    assert left in path.parent.glob(atomic.TEMPORARY)
    with atomic.whole_file(path, is_alone=True) as file:
        file.write(b"new")
    assert (path.read_bytes(), list(path.parent.iterdir())) == (b"new", [path])
    assert (tmp_path / "other").read_bytes() == b"not ours"


def test_text_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.csv"

    def write(text):
        with atomic.whole_text(path) as file:
            file.write(text)
            if "half" in text:
                raise KeyboardInterrupt

    write("1\r\n2\nü")
    with pytest.raises(KeyboardInterrupt):
        write("half")
    assert path.read_bytes() == "1\r\n2\nü".encode()
    atomic.replace_text(path, "ü\ud800")
    assert path.read_bytes() == "ü&#55296;".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_block_does_elsewhere_keeps_its_own_name(tmp_path):
    for error in (OSError(errno.EIO, "no", "other"), OSError("without a number")):
        whole = atomic.whole_file(tmp_path / "a")
        with pytest.raises(OSError, match=r"other|number") as caught, whole:
            raise error
        assert caught.value is error
    with pytest.raises(OSError, match="full") as caught, atomic.whole_file(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.filename == str(tmp_path / "a")
    assert not list(tmp_path.iterdir())


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


# ---------------------------------------------------------------------- locks
HOLDER = """
import sys
from driftree.learn.storage.locks import take_lock
take_lock(sys.argv[1], "")
print("taken", flush=True)
sys.stdin.read()
"""


def test_a_lock_names_its_process_and_ends_with_it(tmp_path):
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"taken\n"
        with pytest.raises(BlockingIOError) as caught:
            locks.take_lock(path, "wait")
        assert str(caught.value) == f"{tmp_path} is in use by process {holder.pid}: wait"
        holder.kill()
    os.close(locks.take_lock(path, "wait"))


def test_who_waits_for_a_lock_gets_it_next(tmp_path):
    path = tmp_path / "lock"
    fd = locks.take_lock(path, "wait")
    order = []

    def work():
        with locks.wait_for_lock(path):
            order.append("waited")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.05)
    order.append("closed")
    os.close(fd)
    thread.join()
    assert order == ["closed", "waited"]


def test_where_there_are_no_locks_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with pytest.raises(OSError, match="which exist on Linux and macOS"):
        locks.take_lock(tmp_path / "lock", "wait")
