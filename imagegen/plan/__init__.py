"""What was decided: a plan in three parts, and the identity of the image it makes."""
