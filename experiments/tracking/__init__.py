"""Runs in MLflow: what is logged of them, the database, logging while runs train, filling it from the record."""
