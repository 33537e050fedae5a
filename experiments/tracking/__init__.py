"""Log runs to MLflow, while they train, when they end and from the record, and remove them."""
