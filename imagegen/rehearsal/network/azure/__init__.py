"""The Azure of a rehearsal: a small, strict Resource Manager, its login and its key vaults."""
