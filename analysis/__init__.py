"""Tables, verdicts and figures from the record (mlruns/*.csv). It needs finished numbers only: no training."""
