"""Drop-in names of five older tools over the one core: change the import, keep the code."""
