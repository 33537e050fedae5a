"""What is made of sentences before they are tokens: templates, negations, clauses."""
