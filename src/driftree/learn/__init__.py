"""The Dynamic Model Tree."""
