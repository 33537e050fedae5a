"""Tables, verdicts and figures from the record (mlruns/*.csv). Needs finished numbers only: no training, no tracking."""
