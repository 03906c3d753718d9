"""Facts as data. Every row names its source, and each source has the day on which it was read."""
