"""Other learners than ours, to compare it with."""
