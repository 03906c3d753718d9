"""The command line as tests call it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from imagegen.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str, str]]:
    """The command line in this process: exit code, standard output, standard error."""

    def ran(*arguments: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["imagegen", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return ran
