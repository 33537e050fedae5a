"""How an encoder is scored: tasks by name, scorers, probes."""
