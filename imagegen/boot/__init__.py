"""Whether a machine that was started from an image came up as a node.

`facts.py`: what somebody found on the machine and around it. `judge.py`: what must be so, by `checks/`, and the
verdict. Neither knows where the facts come from: a rehearsal takes them from its model machine, and a real machine can
be asked too.
"""
