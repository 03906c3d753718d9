"""Manifests: the record of each image, and the store that keeps it."""
