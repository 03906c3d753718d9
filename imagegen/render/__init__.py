"""Renders the exact files that Packer reads and the machine receives."""
