"""The faults that `--fault` injects into a rehearsal. Listing them needs no optional dependency."""
