"""What the process holds in memory, as the operating system sees it."""

import ctypes
import gc
import os
import sys
from pathlib import Path

STATUS = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident size of this process, after returning what is not needed."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def require_linux() -> None:
    """Stop where the resident size cannot be read."""
    if not STATUS.exists():
        sys.exit(f"the resident size is read from {STATUS}, which this system does not have")
