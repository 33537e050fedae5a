"""Every table and figure of the papers, and our own questions, as values."""
