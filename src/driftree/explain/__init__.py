"""Explanations: what the tree has learnt, why it changed, why it predicts, as data and in words.

They are methods of the model (`readable`); here are the records that these return, including the
events of `events_` and their conditions, and the data of plots.
"""

from driftree.explain.changes import Diff as Diff
from driftree.explain.contributions import Importance as Importance
from driftree.explain.counterfactual import Counterfactual as Counterfactual
from driftree.explain.counterfactual import Counterfactuals as Counterfactuals
from driftree.explain.describe import CurveRun as CurveRun
from driftree.explain.describe import LeafCurve as LeafCurve
from driftree.explain.describe import LeafModel as LeafModel
from driftree.explain.explanation import Explanation as Explanation
from driftree.explain.explanation import Explanations as Explanations
from driftree.explain.explanation import LeafFacts as LeafFacts
from driftree.explain.forest import BestTree as BestTree
from driftree.explain.forest import ForestExplanation as ForestExplanation
from driftree.explain.forest import ForestExplanations as ForestExplanations
from driftree.explain.forest import TreePart as TreePart
from driftree.explain.loss_over_time import LossCourse as LossCourse
from driftree.explain.loss_over_time import LossRise as LossRise
from driftree.explain.loss_over_time import NodeLoss as NodeLoss
from driftree.explain.loss_over_time import loss_by_node as loss_by_node
from driftree.explain.loss_over_time import loss_course as loss_course
from driftree.explain.loss_over_time import loss_rises as loss_rises
from driftree.explain.over_time import GainRace as GainRace
from driftree.explain.over_time import OutlineNode as OutlineNode
from driftree.explain.over_time import WeightsOverTime as WeightsOverTime
from driftree.explain.over_time import gain_race as gain_race
from driftree.explain.over_time import outline as outline
from driftree.explain.over_time import weights_over_time as weights_over_time
from driftree.explain.rules import Rule as Rule
from driftree.explain.rules import Weight as Weight
from driftree.explain.sparse import Held as Held
from driftree.explain.text import export_text as export_text
from driftree.learn.drifts import Drift as Drift
from driftree.learn.drifts import InputChange as InputChange
from driftree.learn.events import Bend as Bend
from driftree.learn.events import Condition as Condition
from driftree.learn.events import Curve as Curve
from driftree.learn.events import Event as Event
from driftree.learn.events import LinkChange as LinkChange
from driftree.learn.events import MemberEvent as MemberEvent
from driftree.learn.events import MemberReplaced as MemberReplaced
from driftree.learn.events import MemoryChange as MemoryChange
from driftree.learn.events import ModelChange as ModelChange
from driftree.learn.events import Prune as Prune
from driftree.learn.events import Replace as Replace
from driftree.learn.events import RunnerUp as RunnerUp
from driftree.learn.events import Shift as Shift
from driftree.learn.events import Split as Split
from driftree.learn.events import Spot as Spot
from driftree.learn.events import Unbend as Unbend
from driftree.learn.forest_engine import Look as Look
from driftree.learn.history import Structure as Structure
from driftree.learn.imbalance import Cut as Cut
from driftree.learn.units import Unit as Unit
