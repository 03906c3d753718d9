"""Runs the real cloudbase-init, in a child process, on the model machine.

`run.py` starts the child and answers its calls: every look at the machine (a file, an account, a service, the registry,
the clock, a program to run) comes over a channel to `system.py`, which carries it out on the model machine. The child
(`child.py`, with `windows.py`) knows nothing of imagegen and needs only cloudbase-init: it can run under another
Python, with another version of cloudbase-init.
"""
