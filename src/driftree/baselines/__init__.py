"""Baselines: learners by others, to compare ours with."""
