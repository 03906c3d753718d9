"""Facts as data: every row names its source, and each source says when it was read. A new row needs no code."""
