"""The exact bytes that Packer reads and the guest receives."""
