"""Tables and text."""
