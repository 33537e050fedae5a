"""Statistics, as pure functions."""
