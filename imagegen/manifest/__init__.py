"""The record of what was made: its model, and the store that keeps it."""
