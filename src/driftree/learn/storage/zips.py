"""Zips: the one form that driftree's files have, header by header."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# All members have the 64-bit sizes of ZIP64 (PKWARE's APPNOTE 4.5.3): one form, however large.
LOCAL = struct.Struct("<4s5HI2I2H")
LOCAL_EXTRA = struct.Struct("<2H2Q")
CENTRAL = struct.Struct("<4s6H3I5H2I")
CENTRAL_EXTRA = struct.Struct("<2H3Q")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
VERSION, UNIX = 45, 3  # of ZIP64; the system that permissions are of
NEW_YEAR_1980 = 0x21  # no clock gets into a file
FULL, HALF = 0xFFFFFFFF, 0xFFFF  # "see the 64 bits"
PERMISSIONS = 0o100644 << 16
CHECKSUM = slice(14, 18)  # its place in a local header


class Member(NamedTuple):
    """What the zip says of a member."""

    name: str
    size: int
    checksum: int

    def local_header(self) -> bytes:
        """Return what stands before the member."""
        name = self.name.encode("ascii")
        sizes = LOCAL_EXTRA.pack(1, 16, self.size, self.size)
        # no flags, method 0: stored
        fields = (VERSION, 0, 0, 0, NEW_YEAR_1980, self.checksum, FULL, FULL, len(name), len(sizes))
        return LOCAL.pack(b"PK\3\4", *fields) + name + sizes

    def central_header(self, offset: int) -> bytes:
        """Return what the directory says of the member, which begins at `offset`."""
        name = self.name.encode("ascii")
        sizes = CENTRAL_EXTRA.pack(1, 24, self.size, self.size, offset)
        made_by, date = UNIX << 8 | VERSION, (0, NEW_YEAR_1980)
        lengths = (len(name), len(sizes), 0)
        fields = (made_by, VERSION, 0, 0, *date, self.checksum, FULL, FULL, *lengths, 0, 0)
        return CENTRAL.pack(b"PK\1\2", *fields, PERMISSIONS, FULL) + name + sizes


def header_size(name: str) -> int:
    """Return the bytes before a member."""
    return LOCAL.size + len(name) + LOCAL_EXTRA.size


def size_of(sizes: Mapping[str, int]) -> int:
    """Return the bytes of a zip whose members have these sizes."""
    headers = LOCAL.size + LOCAL_EXTRA.size + CENTRAL.size + CENTRAL_EXTRA.size
    inside = sum(headers + 2 * len(name) + size for name, size in sizes.items())
    return inside + END64.size + LOCATOR.size + END.size


def directory_of(members: Iterable[Member]) -> bytes:
    """Return what follows the last member."""
    headers, offset = [], 0
    for member in members:
        headers.append(member.central_header(offset))
        offset += header_size(member.name) + member.size
    listed = b"".join(headers)
    n, made_by = len(headers), UNIX << 8 | VERSION
    end64 = END64.pack(b"PK\6\6", 44, made_by, VERSION, 0, 0, n, n, len(listed), offset)
    locator = LOCATOR.pack(b"PK\6\7", 0, offset + len(listed), 1)
    return listed + end64 + locator + END.pack(b"PK\5\6", 0, 0, HALF, HALF, FULL, FULL, 0)


# ---------------------------------------------------------------------- arrays
def npy_header_of(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file, version 1.0, always the same for the same array."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    padding = -(len(text) + 11) % 64
    return (
        b"\x93NUMPY\1\0"
        + struct.pack("<H", len(text) + padding + 1)
        + (text + " " * padding + "\n").encode("ascii")
    )
