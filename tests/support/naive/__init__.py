"""The slow, obvious Dynamic Model Tree: the oracle that the fast kernels are compared with.

Written from the paper and the specification only: one object per node, float64 throughout, no
shortcut. "(3)" is an equation of the paper, "Alg. 1, l. 8" a line of its Algorithm 1, and "spec"
a choice of the project's own specification, where the paper is silent or overruled. Two settings
share the tree, the gains (3), (4), (5) and the bottom-up decisions:

* ``paper``: one SGD model per node, candidate losses approximated by (6) and (7).
* ``measured``: a blend of Adagrad and online Newton per node, candidate losses measured by trials.

One module per idea of docs/algorithm.md. ``tree`` has the tree itself and all of its constants; it
inherits the methods that belong to another idea from a class ``Tree...`` of that idea's module.

==================== ===================================================================
module               idea
==================== ===================================================================
``inputs``           rows, their order, and what the simple models read of them
``models``           the simple models and their losses
``nodes``            nodes and their splits
``paper_setting``    the paper's setting: stored candidates, and what is decided by them
``grid``             sums by feature and slot, which propose splits
``trials``           splits that are really tried, and the evidence that fades
``bends``            trials of other models for a node
``renewed``          the second model of a leaf
``borders``          thresholds that move
``challenger``       the model with the other link, with a noise floor or without
``rest``             what is spared
``tree``             the step, and the decisions of the measured setting about splits
==================== ===================================================================
"""
