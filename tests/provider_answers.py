"""What the providers need, and other answers than their own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from types import ModuleType

    import pytest


# By the plugin's name.
PLUGINS = {plugin.name: plugin for plugin in (provider(name).plugin for name in PROVIDERS)}


def answer(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **answers: Any) -> None:  # noqa: ANN401 - fields of Provider
    """`module` is a cloud's `provider`."""
    monkeypatch.setattr(module, "PROVIDER", dataclasses.replace(module.PROVIDER, **answers))
