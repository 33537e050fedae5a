"""The report of a comparison: its table, curves, forest plot and page."""
