"""Signatures of programs and scripts: what a config requires, and what was found."""
