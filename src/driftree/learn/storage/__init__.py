"""Models in files: JSON and numbers, written whole or not at all, read with suspicion."""
