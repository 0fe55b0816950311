"""Evaluation: test-then-train, learners by name, records of scores."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftree.evaluate.checkpoints import Checkpoint as Checkpoint
from driftree.evaluate.checkpoints import Checkpointer as Checkpointer
from driftree.evaluate.checkpoints import CheckpointWarning as CheckpointWarning
from driftree.evaluate.learners import LEARNERS as LEARNERS
from driftree.evaluate.learners import LearnerChoice as LearnerChoice
from driftree.evaluate.learners import learners_for as learners_for
from driftree.evaluate.learners import make_learner as make_learner
from driftree.evaluate.learners import title_of as title_of
from driftree.evaluate.prequential import Evaluation as Evaluation
from driftree.evaluate.prequential import prequential as prequential
from driftree.evaluate.quality import LabelBlock as LabelBlock
from driftree.evaluate.quality import LabelQuality as LabelQuality
from driftree.evaluate.quality import Paired as Paired
from driftree.evaluate.quality import Quality as Quality
from driftree.evaluate.quality import compare_paired as compare_paired
from driftree.evaluate.quality import label_blocks as label_blocks
from driftree.evaluate.records import Figure as Figure
from driftree.evaluate.records import Record as Record
from driftree.evaluate.records import RecordFile as RecordFile
from driftree.evaluate.records import read_records as read_records
from driftree.evaluate.records import slide as slide
from driftree.evaluate.records import summarise as summarise
from driftree.evaluate.scores import NumberScores as NumberScores
from driftree.evaluate.scores import Scores as Scores
from driftree.evaluate.scores import Size as Size
from driftree.evaluate.scores import measure_size as measure_size
from driftree.evaluate.scores import score as score
from driftree.evaluate.scores import score_numbers as score_numbers

if not TYPE_CHECKING:  # which would regard every name as public

    def __getattr__(name: str) -> Any:
        """Find the plots that were in this package before `show` existed."""
        if name not in ("plot_records", "save_figure"):
            raise AttributeError(f"module 'driftree.evaluate' has no attribute {name!r}")
        return getattr(import_module("driftree.show"), name)
