"""The record, MLflow's copy of it, and what a result says of its origin."""
