"""The pipe on which Packer waits for the verdict: nothing is judged before Packer asks, and then it gets an answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ToolError
from imagegen.build.packer import VerdictPipe

if TYPE_CHECKING:
    from pathlib import Path


def _ask(pipe: VerdictPipe, file: Path) -> str:
    """What the reader of the pipe gets, while `answer` is called again and again as during a build."""
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(file.read_text()))
    reader.start()
    while reader.is_alive():
        pipe.answer()
    return heard[0].splitlines()[0]


def test_each_question_gets_the_verdict_of_its_moment(tmp_path: Path) -> None:
    file, rejections = tmp_path / "verdict.pipe", ["no resource", None]
    with VerdictPipe(file, lambda: rejections[0]) as pipe:
        assert pipe.variables == {"verdict_pipe": str(file)}
        assert _ask(pipe, file) == "rejected"
        assert pipe.rejection == "no resource"
        # Packer asks again if it tries the step again.
        del rejections[0]
        assert _ask(pipe, file) == "accepted"
        assert pipe.rejection is None
    assert not file.exists()


def test_nothing_is_judged_before_packer_asks(tmp_path: Path) -> None:
    file = tmp_path / "verdict.pipe"
    file.write_text("of a build that was killed")
    with VerdictPipe(file, lambda: pytest.fail("judged")) as pipe:
        pipe.answer()
        file.unlink()
        pipe.answer()


def test_a_folder_without_named_pipes_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"verdict\.pipe cannot be created: No such file") as raised:
        VerdictPipe(tmp_path / "missing" / "verdict.pipe", lambda: None)
    assert "named pipes" in raised.value.hint
