"""`tenscope run`: recording a script that does not know of it, and the processes that it starts."""
