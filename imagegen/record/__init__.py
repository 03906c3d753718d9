"""The record of an image: its manifest, and the documents that prove it."""
