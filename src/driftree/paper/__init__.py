"""The reproduction of the paper: its experiments, tables I to VI, figures 3 and 4.

`driftree paper` runs all of it; docs/paper.md has the results.
"""

from driftree.paper.experiments import Experiment as Experiment
from driftree.paper.experiments import PaperResults as PaperResults
from driftree.paper.figures import figure_drift as figure_drift
from driftree.paper.figures import figure_tradeoff as figure_tradeoff
from driftree.paper.six_tables import make_tables as make_tables
from driftree.paper.table_formats import WRITERS as WRITERS
from driftree.paper.table_formats import Cell as Cell
from driftree.paper.table_formats import Head as Head
from driftree.paper.table_formats import Table as Table
from driftree.streams.synthetic import paper_agrawal as paper_agrawal
from driftree.streams.synthetic import paper_hyperplane as paper_hyperplane
from driftree.streams.synthetic import paper_sea as paper_sea
