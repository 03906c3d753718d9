"""Downloads: requests, the cache, and the lock that pins their bytes."""
