"""Estimates of what studies test, and the verdicts of plans."""
