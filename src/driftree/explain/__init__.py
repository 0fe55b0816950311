"""What the tree knows, and why it changed: data first, pictures second."""

from driftree.explain.contributions import explain as explain
from driftree.explain.contributions import explain_one as explain_one
from driftree.explain.describe import LeafModel as LeafModel
from driftree.explain.describe import export_text as export_text
from driftree.explain.describe import leaf_models as leaf_models
from driftree.explain.explanation import Explanation as Explanation
from driftree.explain.explanation import Explanations as Explanations
