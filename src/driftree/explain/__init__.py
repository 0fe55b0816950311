"""What the tree knows, why it changed, why it predicts: as data and in words."""

from driftree.explain.changes import Diff as Diff
from driftree.explain.contributions import explain as explain
from driftree.explain.contributions import explain_one as explain_one
from driftree.explain.counterfactual import Counterfactual as Counterfactual
from driftree.explain.counterfactual import counterfactual as counterfactual
from driftree.explain.describe import LeafModel as LeafModel
from driftree.explain.describe import leaf_models as leaf_models
from driftree.explain.explanation import Explanation as Explanation
from driftree.explain.explanation import Explanations as Explanations
from driftree.explain.export import to_dict as to_dict
from driftree.explain.export import to_dot as to_dot
from driftree.explain.importance import Importance as Importance
from driftree.explain.importance import feature_importance as feature_importance
from driftree.explain.markup import tree_html as tree_html
from driftree.explain.rules import Rule as Rule
from driftree.explain.rules import Weight as Weight
from driftree.explain.rules import rules as rules
from driftree.explain.text import export_text as export_text
