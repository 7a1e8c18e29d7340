"""Watching Python line by line: variables, call trees, and how they look on a terminal."""
