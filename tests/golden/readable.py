"""A rendered tree as texts for people to read, and the difference between two of them.

A digest changes with every byte that it is the digest of, and says nothing to a reader. Here it stands as a name, such
as `<sha256 of packer/guest/start.ps1>`. The name is looked up by the digest of the real bytes: a wrong digest keeps its
64 characters, or gets the name of another file.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import io
import itertools
import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import Decided

_BUNDLE = "guest/bundle.zip"
_PLAN = "guest/bundle/plan.json"
_STATIC = "guest/static-files.txt"
_WIDTH = 120

# As difflib gives it: what to do with lines of the base, to make which lines of now.
_Opcode = tuple[str, int, int, int, int]


def read_tree(decided: Decided, tree: Mapping[str, bytes], repository: Path) -> dict[str, str]:
    """The texts by path, with the bundle unpacked. A file that is a copy of one in the repository is only listed."""
    files = _unpack(tree)
    static = _read_static_files(repository, decided.decision.plan.image.provider)
    names = _name_digests(decided, tree, files, static)
    texts, rows = {}, []
    for path, data in files.items():
        sources = [source for source, same in static.items() if same == data]
        if sources:
            rows.append(f"{path}: {' = '.join(sources)}\n")
        elif path == _PLAN:
            texts[path] = _lay_out(_name_sizes(json.loads(data), decided), names) + "\n"
        else:
            texts[path] = _replace_digests(_text(_leave_out_static(data, static)), names)
    return {**texts, _STATIC: "".join(rows)}


def _text(data: bytes) -> str:
    """A certificate is no text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.encodebytes(data).decode()


def _unpack(tree: Mapping[str, bytes]) -> dict[str, bytes]:
    files = {path: data for path, data in tree.items() if path != _BUNDLE}
    with zipfile.ZipFile(io.BytesIO(tree[_BUNDLE])) as archive:
        files |= {f"guest/bundle/{name}": archive.read(name) for name in archive.namelist()}
    return dict(sorted(files.items()))


def _read_static_files(repository: Path, target: str) -> dict[str, bytes]:
    patterns = ("packer/guest/**/*.ps*1", f"packer/{target}/*.ps1", "ansible-win/roles/*/files/**/*")
    paths = sorted(path for pattern in patterns for path in repository.glob(pattern) if path.is_file())
    return {path.relative_to(repository).as_posix(): path.read_bytes() for path in paths}


def _leave_out_static(data: bytes, static: Mapping[str, bytes]) -> bytes:
    """A script that is wrapped, as user data is, stands as its name too."""
    for source, inside in static.items():
        data = data.replace(inside, f"<the content of {source}>\n".encode()) if inside else data
    return data


def _name_digests(
    decided: Decided, tree: Mapping[str, bytes], files: Mapping[str, bytes], static: Mapping[str, bytes]
) -> dict[str, str]:
    rendered = {path: data for path, data in files.items() if data not in static.values()}
    hashed = {**static, **rendered, _BUNDLE: tree[_BUNDLE]}
    named = [(hashlib.sha256(data).hexdigest(), path) for path, data in hashed.items()]
    for name, artifact in decided.lock.artifacts.items():
        named.append((artifact.sha256, f"the artifact {name}"))
        named += [(digest, f"{path} in the artifact {name}") for path, digest in (artifact.members or {}).items()]
        for whole, tarball in (artifact.images or {}).items():
            named.append(((tarball.digest or "").removeprefix("sha256:"), f"the image {whole}"))
            named += [(one.layers.removeprefix("sha256:"), f"the layers of {whole}") for one in tarball.variants]
    for name, image in decided.lock.images.items():
        named.append((image.digest.removeprefix("sha256:"), f"the image {name}"))
        named.append((image.layers.removeprefix("sha256:"), f"the layers of {name}"))
    names: dict[str, str] = {}
    for digest, name in dict.fromkeys(named):
        # Files with the same bytes have one digest.
        names[digest] = f"{names[digest]} = {name}" if digest in names else name
    return {
        **{digest: f"<sha256 of {name}>" for digest, name in names.items()},
        decided.decision.plan.image_id: "<the identity of the image>",
    }


def _replace_digests(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[0-9a-f]{64}\b", lambda match: names.get(match[0], match[0]), text)


def _name_sizes(plan: dict[str, Any], decided: Decided) -> dict[str, Any]:
    """A test lock's artifacts are stand-ins: their sizes are as arbitrary as their digests."""
    for name, artifact in plan["artifacts"].items():
        if artifact["size"] == decided.lock.artifacts[name].size:
            artifact["size"] = f"<size of the artifact {name}>"
    return plan


def _lay_out(value: object, names: Mapping[str, str], indent: str = "") -> str:
    """JSON with each part on one line that has room for it."""
    line = _replace_digests(json.dumps(value, sort_keys=True), names)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = f"{indent}  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lay_out(value[key], names, inner)}" for key in sorted(value)]
    else:
        parts = [_lay_out(item, names, inner) for item in value]
    first, last = line[0], line[-1]
    return f"{first}\n" + ",\n".join(f"{inner}{part}" for part in parts) + f"\n{indent}{last}"


def describe_difference(base: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What makes `now` of `base`, as a unified diff without line numbers: these would change with the base alone."""
    lines: list[str] = []
    for path in sorted(base.keys() | now.keys()):
        if path not in now:
            lines += [f"--- {path}", "+++ /dev/null"]
        elif path not in base:
            lines += ["--- /dev/null", f"+++ {path}", *(f"+{line}" for line in _lines(now[path]))]
        elif base[path] != now[path]:
            lines += [f"--- {path}", f"+++ {path}", *_hunks(_lines(base[path]), _lines(now[path]))]
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*lines, last, "\\ No newline at end of file"] if last else lines


def _hunks(base: list[str], now: list[str]) -> list[str]:
    """Hunks with as few lines of context as give each its one place in the base."""
    candidates = (
        list(difflib.SequenceMatcher(None, base, now, autojunk=False).get_grouped_opcodes(context))
        for context in itertools.count(1)
    )
    # With enough context one hunk is the whole base, which occurs once in itself.
    groups = next(
        groups for groups in candidates if all(_occurs_once(base[group[0][1] : group[-1][2]], base) for group in groups)
    )
    return [line for group in groups for line in (_heading(group, base), *_hunk(group, base, now))]


def _occurs_once(block: list[str], lines: list[str]) -> bool:
    starts = range(len(lines) - len(block) + 1)
    return sum(lines[start : start + len(block)] == block for start in starts) == 1


def _heading(group: list[_Opcode], base: list[str]) -> str:
    """Where the first change is: the lines that enclose it, by their indentation; of an object in a list, its name."""
    changed = next(first for tag, first, *_ in group if tag != "equal")
    indent = _indent(base[changed]) if changed < len(base) else 0
    enclosing: list[str] = []
    for line, after in reversed(list(itertools.pairwise(base[: changed + 1]))):
        if line and _indent(line) < indent:
            indent = _indent(line)
            is_named = line.strip() == "{" and after.strip().startswith('"name": ')
            enclosing.insert(0, after.strip() if is_named else line.strip())
    return " ".join(["@@", *(line for line in enclosing if line != "{")])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _hunk(group: list[_Opcode], base: list[str], now: list[str]) -> Iterator[str]:
    for tag, first, last, first_now, last_now in group:
        if tag == "equal":
            yield from (f" {line}" if line else "" for line in base[first:last])
        else:
            yield from (f"-{line}" for line in base[first:last])
            yield from (f"+{line}" for line in now[first_now:last_now])
