"""The record, MLflow's copy of it, and the provenance of results."""
