"""The command `driftree`, also as `python -m driftree`."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # as in cli/screen.py, which is not imported yet
IMPORTING = "<frozen importlib."  # file of the functions that import


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from driftree.cli import app

        app(prog_name="driftree")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; but end at once if a module is being imported.

    That is most of the time until a command starts. An interrupted module may raise any other
    error, or go on.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
