"""Compare methods, each with its settings chosen by equally many trials."""
