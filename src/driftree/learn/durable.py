"""Durable: files that are replaced whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def replace_file(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file beside the one of this name and put it in its place, both made durable.

    A new file's permissions follow the umask, one that takes the place of another keeps its own. If
    the process is killed meanwhile, a hidden `.driftree-*.tmp` may be left, which nobody reads.
    """
    target = os.path.realpath(os.fsdecode(path))
    folder, name = os.path.split(target)
    mode = _mode_of(target)
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        words = "there is no such directory, make it before you save to it"
        raise FileNotFoundError(errno.ENOENT, words, folder) from None
    try:
        temporary = f".driftree-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        fd = os.open(temporary, flags, 0o666, dir_fd=folder_fd)
        try:
            with open(fd, "wb") as file:
                if mode is not None:
                    os.fchmod(fd, mode)
                file.writelines(chunks)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder_fd)
            raise
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _mode_of(target: str) -> int | None:
    """Return the permissions of the file that is going to be replaced; None if there is none."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        words = "this is a directory, give the name of a file in it"
        raise IsADirectoryError(errno.EISDIR, words, target)
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "this is no file, and is not replaced by one", target)
    return stat.S_IMODE(mode)
