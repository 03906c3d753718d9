"""The command line: parses the options, calls the pipeline once, and prints the result."""
