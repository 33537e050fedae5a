"""The report of a comparison: its table, curves, forest and page."""
