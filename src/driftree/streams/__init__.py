"""Where rows come from."""

from driftree.streams.concepts import AGRAWAL_FEATURES as AGRAWAL_FEATURES
from driftree.streams.concepts import label_agrawal as label_agrawal
from driftree.streams.concepts import label_sea as label_sea
from driftree.streams.paper import paper_agrawal as paper_agrawal
from driftree.streams.paper import paper_hyperplane as paper_hyperplane
from driftree.streams.paper import paper_sea as paper_sea
from driftree.streams.synthetic import agrawal as agrawal
from driftree.streams.synthetic import drifting_agrawal as drifting_agrawal
from driftree.streams.synthetic import hyperplane as hyperplane
from driftree.streams.synthetic import sea as sea
