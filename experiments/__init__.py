"""Studies, the runs that they need, and the commands that train, record and show these runs."""
