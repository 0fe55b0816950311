"""More than one model, more than one machine."""

from driftree.scale.key_records import Drift as Drift
from driftree.scale.key_records import KeyRecord as KeyRecord
from driftree.scale.key_records import Summary as Summary
from driftree.scale.keyed import KeyedModels as KeyedModels
from driftree.scale.merging import merge as merge
from driftree.scale.one_model import fit as fit
