"""Scores as pure functions of arrays."""
