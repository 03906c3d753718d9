"""Other answers of a cloud than its provider's own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    import pytest


def answer(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **answers: Any) -> None:  # noqa: ANN401 - fields of Provider
    """`module` is a cloud's `provider`."""
    monkeypatch.setattr(module, "PROVIDER", dataclasses.replace(module.PROVIDER, **answers))
