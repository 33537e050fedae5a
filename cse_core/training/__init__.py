"""The training loop and what it leaves on disk."""
