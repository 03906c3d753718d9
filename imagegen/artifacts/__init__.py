"""Artifacts: downloads, and the lock that pins their bytes."""
