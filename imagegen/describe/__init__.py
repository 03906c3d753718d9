"""Describes steps and kinds of resource from the files that define them, for people and for programs. Pure."""
