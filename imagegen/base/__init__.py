"""What every room may use: errors, text, files, signals, the console and templates."""
