"""Recording: the run that a process writes, its rank, and what the recorder asks of Python."""
