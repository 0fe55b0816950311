"""What the benchmarks' command lines share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a parser of names with commas between them, which refuses all others."""

    def parse(text: str) -> list[str]:
        unknown = sorted(set(text.split(",")) - set(allowed))
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; allowed: {', '.join(allowed)}"
            )
        return text.split(",")

    return parse
