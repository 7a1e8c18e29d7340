"""Runs made by tests do not describe how they were made (a git and package scan each) unless a test asks for it."""

import os

os.environ.setdefault("TENSCOPE_METADATA", "0")
