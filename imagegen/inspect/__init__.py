"""Reads what is in a file: archives, installers and programs."""
