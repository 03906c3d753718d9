"""YAML files with the line of every value, and messages for values that a model rejects."""
