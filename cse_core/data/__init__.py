"""Corpora, evaluation sets, batches, and files that are written whole."""
