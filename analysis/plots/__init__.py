"""Studies as figures: one frozen value in, one figure out."""
