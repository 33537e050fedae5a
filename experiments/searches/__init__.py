"""Hyperparameter searches by dev scores."""
