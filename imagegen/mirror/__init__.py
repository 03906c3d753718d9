"""A mirror of all downloads of configs: in a folder or in a cloud's storage, for networks without a way out."""
