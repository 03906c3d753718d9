from __future__ import annotations

import pytest

from imagegen.build.output import OutputLine, Record, plain, read_line


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (
            "1795007299,,ui,say,==> img.null.x: a%!(PACKER_COMMA) b",
            (OutputLine("a, b", "img.null.x"),),
        ),
        ("1,,ui,error,==> null.x: to stderr", (OutputLine("to stderr", "null.x", error=True),)),
        ("1,,ui,message,    null.x: indented", (OutputLine("indented", "null.x"),)),
        ("1,,ui,say,==> null.x: one\\n==> null.x: two", (OutputLine("one", "null.x"), OutputLine("two", "null.x"))),
        ("1,,ui,say,==> null.x: C:\\new\\run", (OutputLine("C:\\new\\run", "null.x"),)),
        ("1,,ui,say,==> null.x: ended by Windows\\r", (OutputLine("ended by Windows", "null.x"),)),
        ("1,,ui,say,==> null.x: ", (OutputLine("", "null.x"),)),
        (
            "1,,ui,error,Error: Unsupported argument\\n\\n  on a.hcl line 1:\\n",
            (OutputLine("Error: Unsupported argument", error=True), OutputLine("  on a.hcl line 1:", error=True)),
        ),
        ("1,,error-count,1", (Record("error-count", "", ("1",)),)),
        (
            "1,null.x,artifact,0,id,us-east-1:ami-1%!(PACKER_COMMA)us-west-2:ami-2",
            (Record("artifact", "null.x", ("0", "id", "us-east-1:ami-1,us-west-2:ami-2")),),
        ),
        ("1,null.x,artifact,0,end", (Record("artifact", "null.x", ("0", "end")),)),
        ("panic: runtime error, sorry", (OutputLine("panic: runtime error, sorry"),)),
    ],
)
def test_a_line_is_read(line: str, read: tuple[OutputLine | Record, ...]) -> None:
    assert read_line(line) == read


def test_the_line_breaks_of_an_unprefixed_text_are_restored() -> None:
    assert plain("1 error:\\r\\n\\n* no such AMI") == "1 error:\n\n* no such AMI"
