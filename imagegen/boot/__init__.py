"""Whether a machine that was started from an image came up as a node.

`node.py`: what can be read of a machine. `judge.py`: the one list of checks, each a function of such a machine. Neither
knows what the machine is: a rehearsal answers from its model machine, and a real machine can be asked too.
"""
