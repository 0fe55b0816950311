"""Quality: what `driftree run` and `compare` say beside means: labels, baseline, chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from driftree.evaluate.quality import Paired, Quality
    from driftree.evaluate.records import Record
    from driftree.evaluate.runs import RunResult

MOST_LABELS = 8  # that are listed


MOST_PARTS = 5  # of the stream, to say how the labels' shares went


def tell_quality(console: Console, results: list[RunResult], records: list[Record]) -> None:
    """Print the label mix, who always says one label, and how well each label was found."""
    from driftree.evaluate.learners import title_of
    from driftree.evaluate.records import by_learner

    quality = {name: own for result in results for name, own in result.quality.items()}
    if not quality or not next(iter(quality.values())).n_rows:
        return
    first, names = next(iter(quality.values())), results[0].labels
    labels = sorted(first.labels(names), key=lambda one: -one.share)
    shares = ", ".join(f"{one.label!r} {one.share:.1%}" for one in labels[:MOST_LABELS])
    rest = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    console.print(
        f"\nLabels: {shares}{rest}. Who always says {labels[0].label!r} has an accuracy of "
        f"{first.majority:.3f}.",
        highlight=False,
    )
    groups = by_learner(records)
    if over_time := _say_mix(groups[next(iter(quality))]):
        console.print(over_time, highlight=False)
    for name, own in quality.items():
        ece = groups[name][-1].ece
        words = f"- {title_of(name)}: {say_quality(own, names)}; calibration error {_show(ece)}"
        console.print(words, highlight=False, soft_wrap=True)


def _say_mix(records: list[Record]) -> str:
    """Say how the labels' shares went over the stream; nothing of too few batches."""
    from driftree.evaluate.labels import label_blocks, names_in

    blocks = label_blocks(records, MOST_PARTS)
    if len(blocks) < MOST_PARTS:
        return ""
    shares = [{one.label: one.share for one in block.labels()} for block in blocks]
    each = ", ".join(
        f"{name} {' '.join(f'{100 * part.get(name, 0.0):.0f}' for part in shares)}"
        for name in names_in(blocks)[:MOST_LABELS]
    )
    return f"Over time, in % of each fifth of the stream: {each}."


def say_quality(quality: Quality, names: list[object]) -> str:
    """Return the figures of one learner over all rows, the rarest labels first."""
    labels = sorted(quality.labels(names), key=lambda one: one.share)
    each = "; ".join(
        f"{one.label!r} recall {_show(one.recall)}, precision {_show(one.precision)}"
        for one in labels[:MOST_LABELS]
        if one.share
    )
    auc = "" if quality.auc != quality.auc else f", AUC {quality.auc:.3f}"
    return f"macro F1 {quality.macro_f1:.3f}{auc}; {each}"


def _show(share: float) -> str:
    return "-" if share != share else f"{share:.3f}"  # noqa: PLR0124 (not a number)


def pair_learners(records: list[Record]) -> list[Paired]:
    """Compare the best learner with each of the others, batch by batch."""
    from driftree.evaluate.quality import compare_paired
    from driftree.evaluate.records import by_learner

    groups = by_learner(records)
    is_label = records[0].task == "classification"
    scores = {
        name: [record.accuracy if is_label else record.mae for record in group]
        for name, group in groups.items()
    }
    sign = 1 if is_label else -1
    best = max(scores, key=lambda name: sign * sum(scores[name]) / len(scores[name]))
    return [
        compare_paired((best, scores[best]), (name, own), higher_is_better=is_label)
        for name, own in scores.items()
        if name != best and len(own) == len(scores[best])
    ]
