"""Searches of settings on dev scores."""
