"""Comparisons and claims, judged."""
