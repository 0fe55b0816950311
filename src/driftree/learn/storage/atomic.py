"""Atomic: files that are replaced whole, or not at all. All of driftree's are written here.

Only what grows line by line is not: the records of a run, a journal's batches, a download.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

TEMPORARY = ".driftree-*.tmp"  # what a process may leave that is killed while it writes a file
ACL = "system.posix_acl_access"
GROUP, OTHERS = stat.S_IRWXG, stat.S_IRWXO


def replace_file(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file of these bytes, as `whole_file` does.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "notes.txt")
    >>> replace_file(path, [b"one", b"two"])
    >>> path.read_bytes()
    b'onetwo'
    """
    with whole_file(path) as file:
        file.writelines(chunks)


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of this text, as `whole_file` does; half characters become references."""
    replace_file(path, [text.encode("utf-8", errors="xmlcharrefreplace")])


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike[str], *, is_alone: bool = False
) -> Iterator[io.BufferedRandom]:
    """Write a file beside the one of this name; at the end of the block it takes its place.

    A new file's permissions follow the umask. One that takes the place of another keeps its
    permissions, and as far as the system lets it its owner, group and access list. If the block
    raises, the old file stays. If the process is killed meanwhile, a hidden `.driftree-*.tmp` may
    be left, which nobody reads.

    Parameters
    ----------
    path : path
        The file; a link stays a link.
    is_alone : bool, default=False
        Whether no other process can be writing this file, because a lock is held. Then the hidden
        file always has the same name, and what a killed process left under it goes first.
    """
    new = Unfinished(path, is_alone=is_alone)
    try:
        with _named(path, only_unnamed=True), open(new.fd, "w+b", closefd=False) as file:
            yield file
        new.put_in_place()
    finally:
        new.close()


@contextlib.contextmanager
def whole_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Write a file of text, as `whole_file` does."""
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()


class Unfinished:
    """A file that has no name yet.

    Parameters
    ----------
    path : path
        The name it is going to have.
    is_alone : bool, default=False
        As in `whole_file`.
    is_private : bool, default=False
        Whether a new file is its owner's only, whatever the umask says.

    Attributes
    ----------
    fd : int
        To write to.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, is_alone: bool = False, is_private: bool = False
    ) -> None:
        self._path = path
        target = os.path.realpath(os.fsdecode(path))
        folder, self._name = os.path.split(target)
        tag = self._name if is_alone else secrets.token_hex(8)
        self._temporary: str | None = f".driftree-{tag}.tmp"
        with _named(path):
            old = _look_at(target)
            try:
                self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                words = "there is no such directory, make it before you save to it"
                raise FileNotFoundError(errno.ENOENT, words, folder) from None
            self.fd = -1
            try:
                if is_alone:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self._temporary, dir_fd=self._folder_fd)
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
                # What replaces a file is nobody else's to read before it has that file's owner.
                mode = 0o666 if old is None and not is_private else 0o600
                self.fd = os.open(self._temporary, flags, mode, dir_fd=self._folder_fd)
                if old is not None:
                    old.pass_on(self.fd)
            except BaseException:
                self.close()
                raise

    def put_in_place(self) -> None:
        """Make it durable, give it its name, and make that durable."""
        assert self._temporary is not None
        with _named(self._path):
            os.fsync(self.fd)
            folder = self._folder_fd
            os.replace(self._temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            self._temporary = None
            os.fsync(folder)

    def close(self) -> None:
        """Close it; without a name, it is gone."""
        if self._temporary is not None and self.fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._folder_fd)
        for fd in (self.fd, self._folder_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self._folder_fd = -1


def put_in_place(whole: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Give a file that is whole and durable another name in its folder, in one durable step."""
    folder_fd = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.replace(whole, path)
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


@contextlib.contextmanager
def _named(path: str | os.PathLike[str], *, only_unnamed: bool = False) -> Iterator[None]:
    """Let errors of the system name the path that the user gave, not that of a temporary file."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
        raise  # these are about a path of the user's, which they name
    except OSError as error:
        if error.errno is None or (only_unnamed and error.filename is not None):
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


def _is_done(act: Any, *arguments: object) -> bool:
    try:
        act(*arguments)
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
        raise FileExistsError(errno.EEXIST, "not a regular file: it is not replaced by one", target)
    return _Old(target, found)


# ---------------------------------------------------------------------- closing
class Closing:
    """What is closed at the end of a `with` block."""

    def close(self) -> None:
        """End its use."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
