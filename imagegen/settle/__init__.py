"""What holds for one target: every value that the config leaves out is filled in once, and each has its origin."""
