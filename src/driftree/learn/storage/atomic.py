"""Atomic: files that are replaced whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ACL = "system.posix_acl_access"
GROUP, OTHERS = stat.S_IRWXG, stat.S_IRWXO


def replace_file(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file beside the one of this name and put it in its place, both made durable.

    A new file's permissions follow the umask. One that takes the place of another keeps its
    permissions, and as far as the system lets it its owner, group and access list. If the process
    is killed meanwhile, a hidden `.driftree-*.tmp` may be left, which nobody reads.
    """
    target = os.path.realpath(os.fsdecode(path))
    folder, name = os.path.split(target)
    with _named(path):
        old = _look_at(target)
        try:
            folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            words = "there is no such directory, make it before you save to it"
            raise FileNotFoundError(errno.ENOENT, words, folder) from None
        try:
            _replace(folder_fd, name, old, chunks)
        finally:
            os.close(folder_fd)


def _replace(
    folder_fd: int, name: str, old: _Old | None, chunks: Iterable[bytes | memoryview]
) -> None:
    temporary = f".driftree-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    # What replaces a file is nobody else's to read before it has that file's owner.
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=folder_fd)
    try:
        with open(fd, "wb") as file:
            if old is not None:
                old.pass_on(fd)
            file.writelines(chunks)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder_fd)
        raise
    os.fsync(folder_fd)


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system name the path that the user gave, not that of a temporary file."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
        raise  # these are about a path of the user's, which they name
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from error


# ---------------------------------------------------------------------- whose a file is
class _Old:
    """Owner, group, permissions and access list of a file that is going to be replaced."""

    def __init__(self, target: str, found: os.stat_result) -> None:
        self.owner, self.group = found.st_uid, found.st_gid
        self.mode = stat.S_IMODE(found.st_mode)
        self.access: bytes | None = None
        with contextlib.suppress(OSError, AttributeError):  # there is none, here or on this system
            self.access = os.getxattr(target, ACL)

    def pass_on(self, fd: int) -> None:
        """Make them those of a new file, as far as the system lets it; it never grants more.

        The owner comes first: changing it takes setuid and setgid away, and permissions given
        before would be another's for a moment.
        """
        new, mode = os.fstat(fd), self.mode
        has_group = new.st_gid == self.group or _is_done(os.fchown, fd, -1, self.group)
        has_owner = new.st_uid == self.owner or _is_done(os.fchown, fd, self.owner, -1)
        if not has_owner:
            mode &= ~stat.S_ISUID
        if not has_group:
            mode &= ~stat.S_ISGID
        if has_group and self.access is not None:
            os.fchmod(fd, mode & ~GROUP)
            if _is_done(os.setxattr, fd, ACL, self.access):
                return
        if not has_group or self.access is not None:  # another group: it may what all others may
            mode &= ~GROUP | (mode & OTHERS) << 3
        os.fchmod(fd, mode)


def _is_done(act: object, *arguments: object) -> bool:
    try:
        act(*arguments)  # type: ignore[operator]
    except OSError:
        return False
    return True


def _look_at(target: str) -> _Old | None:
    """Return what is known of the file that is going to be replaced; None if there is none."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        words = "this is a directory, give the name of a file in it"
        raise IsADirectoryError(errno.EISDIR, words, target)
    if not stat.S_ISREG(found.st_mode):
        raise FileExistsError(errno.EEXIST, "this is no file, and is not replaced by one", target)
    return _Old(target, found)
