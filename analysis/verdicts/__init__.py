"""Verdicts on comparisons and claims."""
