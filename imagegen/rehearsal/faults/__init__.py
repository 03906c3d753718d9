"""The faults that `--fault` injects into a rehearsal. Listing them needs no extra of the package."""
