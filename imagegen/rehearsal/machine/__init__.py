"""The model of a Windows machine, on which a rehearsal carries a plan out.

stock_windows(root, release=, cloud=)   a machine as its cloud starts it
run_entry(machine, arguments, fetch)    the guest's entry script
machine.restart()                       what Windows does at a restart
generalise(machine, cloud=)             the cloud's generalise script
"""

from __future__ import annotations

from imagegen.rehearsal.machine.engine import Outcome, run_entry
from imagegen.rehearsal.machine.seal import generalise
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.rehearsal.machine.windows import Machine

__all__ = ["Machine", "Outcome", "generalise", "run_entry", "stock_windows"]
