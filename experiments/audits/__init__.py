"""Train recorded runs again and compare them with the record."""
