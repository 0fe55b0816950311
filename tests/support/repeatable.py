"""What of a record is the same in every run of the same evaluation."""

from driftree.evaluate import Record

NAMES = [
    name
    for name in Record.__slots__
    if name not in ("predict_seconds", "learn_seconds", "memory")  # memory grows in steps
]


def figures(records):
    """Return all that is said but for times and memory; as text, for NaN is not equal to itself."""
    return [tuple(str(getattr(record, name)) for name in NAMES) for record in records]
