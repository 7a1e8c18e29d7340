"""Comparing values, files and runs."""
