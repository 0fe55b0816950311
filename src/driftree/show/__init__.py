"""Show: plots and the report, drawn from the data of `explain` and `evaluate`."""

from driftree.show.contributions import plot_contributions as plot_contributions
from driftree.show.over_time import plot_gain_race as plot_gain_race
from driftree.show.over_time import plot_weights_over_time as plot_weights_over_time
from driftree.show.report import report as report
from driftree.show.scores import plot_records as plot_records
from driftree.show.scores import plot_tradeoff as plot_tradeoff
from driftree.show.style import save_figure as save_figure
from driftree.show.timeline import plot_drift_by_level as plot_drift_by_level
from driftree.show.timeline import plot_timeline as plot_timeline
from driftree.show.trees import plot_tree as plot_tree
