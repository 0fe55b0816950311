"""More than one model, more than one machine."""

from driftree.scale.keyed import KeyedModels as KeyedModels
from driftree.scale.keys import KeyDrift as KeyDrift
from driftree.scale.keys import KeyRecord as KeyRecord
from driftree.scale.keys import Summary as Summary
from driftree.scale.merging import fit as fit
from driftree.scale.merging import merge as merge
