"""What happens to sentences before tokenisation: templates, negations, clauses."""
