"""YAML files with the line of every value, and a model's complaints about them in plain words."""
