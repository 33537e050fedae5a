"""Evaluations of finished encoders. Scores lie in [0, 1] at full precision."""
