"""The texts below the fields of a class, from its own source. Only the commands that show them read it."""

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Mapping


@functools.cache
def field_notes(described: type) -> Mapping[str, str]:
    """The text of each field that has one."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(described))).body
    notes = {}
    previous: ast.stmt | None = None
    for part in body.body if isinstance(body, ast.ClassDef) else []:
        match previous, part:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                notes[name] = inspect.cleandoc(text).replace("\n", " ")
            case _:
                pass
        previous = part
    return types.MappingProxyType(notes)
