"""Settles a config for one target: fills in every value that the config leaves out, and records its origin."""
