"""Folders that several machines share."""
