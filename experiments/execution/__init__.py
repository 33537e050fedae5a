"""Jobs, plans, and how Ray runs them."""
