"""Explains where every value of a config comes from, and why each step is in the plan."""
