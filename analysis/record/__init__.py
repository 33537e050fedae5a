"""Checks of the record and of the files made from it: differences, runs of no study, retrained runs."""
