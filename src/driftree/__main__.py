"""`python -m driftree` is `driftree`."""

from driftree.cli import app

app(prog_name="driftree")
