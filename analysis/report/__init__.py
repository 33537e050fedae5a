"""Tables and text of the report."""
