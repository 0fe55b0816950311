"""More than one model, more than one machine."""
