"""Recorded runs, trained again and compared with the record."""
