"""What was asked: the closed model of a config, and its YAML with positions."""
