"""What the tree knows, and why it changed: data first, pictures second."""

from driftree.explain.describe import LeafModel as LeafModel
from driftree.explain.describe import export_text as export_text
from driftree.explain.describe import leaf_models as leaf_models
