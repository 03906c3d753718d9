"""Which of the builder's sizes a build ends up with."""

from __future__ import annotations

import io

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import BuildError
from imagegen.build.packer import PackerError, build_on_first


def test_the_next_size_is_tried_and_what_the_first_left_is_told() -> None:
    output = io.StringIO()
    tried: list[str] = []

    def build(size: str) -> str:
        tried.append(size)
        if size == "large":
            left = "Packer did not delete packer_1\ndelete it"
            raise PackerError("Packer failed: 400", hint=left, causes=["400", "NoneLeft : sorry"])
        return f"made on {size}"

    console = Console(output, plain=True)
    made = build_on_first(["large", "small", "tiny"], build, no_capacity={"NoneLeft"}, console=console)
    assert made == "made on small"
    assert tried == ["large", "small"]
    assert [line.partition(" ")[2] for line in output.getvalue().splitlines()] == [
        "warning: large is not available now (NoneLeft): trying small",
        "warning: Packer did not delete packer_1",
        "warning: delete it",
    ]


@pytest.mark.parametrize(("message", "sizes"), [("Packer failed", ["a", "b"]), ("NoneLeft", ["a"])])
def test_other_failures_and_the_last_size_end_it(message: str, sizes: list[str]) -> None:
    def build(_size: str) -> str:
        raise PackerError(message, causes=[message])

    with pytest.raises(BuildError, match=message):
        build_on_first(sizes, build, no_capacity={"NoneLeft"}, console=Console(io.StringIO(), plain=True))
