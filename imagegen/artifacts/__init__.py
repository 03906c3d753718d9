"""Where bytes come from: the lock of what was looked up, and the downloads it is computed from."""
