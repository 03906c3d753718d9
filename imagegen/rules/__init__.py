"""Combinations that cannot work, refused before anything runs, each with its reason."""
