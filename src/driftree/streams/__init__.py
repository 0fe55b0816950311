"""Where rows come from."""

from driftree.streams.combine import drift as drift
from driftree.streams.concepts import AGRAWAL_FEATURES as AGRAWAL_FEATURES
from driftree.streams.concepts import STAGGER_FEATURES as STAGGER_FEATURES
from driftree.streams.concepts import label_agrawal as label_agrawal
from driftree.streams.concepts import label_led as label_led
from driftree.streams.concepts import label_sea as label_sea
from driftree.streams.concepts import label_sine as label_sine
from driftree.streams.concepts import label_stagger as label_stagger
from driftree.streams.generators import led as led
from driftree.streams.generators import random_rbf as random_rbf
from driftree.streams.generators import sine as sine
from driftree.streams.generators import stagger as stagger
from driftree.streams.paper import paper_agrawal as paper_agrawal
from driftree.streams.paper import paper_hyperplane as paper_hyperplane
from driftree.streams.paper import paper_sea as paper_sea
from driftree.streams.synthetic import agrawal as agrawal
from driftree.streams.synthetic import drifting_agrawal as drifting_agrawal
from driftree.streams.synthetic import hyperplane as hyperplane
from driftree.streams.synthetic import sea as sea
