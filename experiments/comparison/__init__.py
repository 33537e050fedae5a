"""Compare methods with equal tuning: the same number of trials chooses the settings of each."""
