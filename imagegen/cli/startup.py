"""Makes short verbs start fast; imported before anything else of the command line. Measured by `make bench`.

What every verb imports is made of named tuples rather than dataclasses, each of which takes a millisecond to make."""

from __future__ import annotations

import atexit
import gc
import sys
import types

# What start-up imports lives as long as the process: collecting garbage among it is a sixth of a short verb's time.
# Verbs that run long enable it again.
gc.disable()
# And what is left at the end goes with the process: looking through it once more is a tenth of a short verb's time.
atexit.register(gc.freeze)

# pydantic looks through every installed distribution for plugins, for a tenth of a short verb's time; imagegen's models
# want none. Where pydantic has another name for its loader, this is without effect.
_NO_PLUGINS = types.ModuleType("pydantic.plugin._loader")
_NO_PLUGINS.get_plugins = tuple  # type: ignore[attr-defined]  # a module's attributes are not declared
sys.modules.setdefault(_NO_PLUGINS.__name__, _NO_PLUGINS)
