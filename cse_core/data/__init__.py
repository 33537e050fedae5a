"""Corpora, evaluation sets, batches, and atomic file writes."""
