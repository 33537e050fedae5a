"""Figures of studies."""
