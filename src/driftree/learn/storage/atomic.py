"""Atomic: files that are replaced atomically. All files of driftree are written here.

Exceptions are files that grow: the records of a run, a journal's batches, a download.
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

TEMPORARY = ".driftree-*.tmp"  # temporary files, which a killed process may leave
ACL = "system.posix_acl_access"
GROUP, OTHERS = stat.S_IRWXG, stat.S_IRWXO


def replace_file(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Write bytes to a file, as `whole_file`.

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
    """Write text to a file, as `whole_file`; lone surrogates become references."""
    replace_file(path, [text.encode("utf-8", errors="xmlcharrefreplace")])


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike[str], *, is_alone: bool = False
) -> Iterator[io.BufferedRandom]:
    """Open a temporary file, which replaces the named one at the end of the block.

    A new file's permissions follow the umask. One that replaces another keeps its permissions and,
    where the system allows it, its owner, group and access list. If the block raises, the old file
    stays. If the process is killed meanwhile, a hidden `.driftree-*.tmp` may be left, which is
    never read.

    Parameters
    ----------
    path : path
        The file; a link stays a link.
    is_alone : bool, default=False
        Whether no other process can be writing this file, because a lock is held. Then the
        temporary file always has the same name, and one left by a killed process is removed first.
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
    """Open a text file, as `whole_file`."""
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()


class Unfinished:
    """A temporary file that will be renamed.

    Parameters
    ----------
    path : path
        Its final name.
    is_alone : bool, default=False
        As in `whole_file`.
    is_private : bool, default=False
        Whether a new file is readable only by its owner, whatever the umask says.

    Attributes
    ----------
    fd : int
        File descriptor for writing.
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
                words = "there is no such directory: create it first"
                raise FileNotFoundError(errno.ENOENT, words, folder) from None
            self.fd = -1
            try:
                if is_alone:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self._temporary, dir_fd=self._folder_fd)
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
                # Until it has the owner of the file that it replaces, nobody else may read it.
                mode = 0o666 if old is None and not is_private else 0o600
                self.fd = os.open(self._temporary, flags, mode, dir_fd=self._folder_fd)
                if old is not None:
                    old.pass_on(self.fd)
            except BaseException:
                self.close()
                raise

    def put_in_place(self) -> None:
        """Sync it, rename it, and sync the directory."""
        assert self._temporary is not None
        with _named(self._path):
            os.fsync(self.fd)
            folder = self._folder_fd
            os.replace(self._temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            self._temporary = None
            os.fsync(folder)

    def close(self) -> None:
        """Close it; remove it if it was not renamed."""
        if self._temporary is not None and self.fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._folder_fd)
        for fd in (self.fd, self._folder_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self._folder_fd = -1


def put_in_place(whole: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Rename a complete, synced file within its folder, durably."""
    folder_fd = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.replace(whole, path)
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


@contextlib.contextmanager
def _named(path: str | os.PathLike[str], *, only_unnamed: bool = False) -> Iterator[None]:
    """Let system errors name the user's path, not that of the temporary file."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
        raise  # these already name the user's path
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
        """Copy them to a new file, as far as the system allows it, without ever granting more.

        The owner comes first: changing it clears setuid and setgid, and permissions set before
        would belong to another owner for a moment.
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
        if not has_group or self.access is not None:  # another group gets only the rights of others
            mode &= ~GROUP | (mode & OTHERS) << 3
        os.fchmod(fd, mode)


def _is_done(act: Any, *arguments: object) -> bool:
    try:
        act(*arguments)
    except OSError:
        return False
    return True


def _look_at(target: str) -> _Old | None:
    """Return the attributes of the file to be replaced; None if there is none."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        words = "this is a directory: give the name of a file in it"
        raise IsADirectoryError(errno.EISDIR, words, target)
    if not stat.S_ISREG(found.st_mode):
        raise FileExistsError(errno.EEXIST, "not a regular file, so it is not replaced", target)
    return _Old(target, found)


# ---------------------------------------------------------------------- closing
class Closing:
    """An object that is closed at the end of a `with` block."""

    def close(self) -> None:
        """Close it."""
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
