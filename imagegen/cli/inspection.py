"""What is told about an inspected download: texts for people, JSON for programs, and lines for a config. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, get_args

from imagegen.base.lines import counted
from imagegen.cli.override_fit import find_missing, find_overrides
from imagegen.inspect.archive import NAMES, ArchiveFormat
from imagegen.inspect.members import find_ambiguous, is_program

if TYPE_CHECKING:
    from imagegen.inspect.inspect import InspectedFile, Inspection
    from imagegen.trust.messages import FoundSignature

Override = dict[str, str]
"""The keys and values of an override."""

_SHOWN_PROGRAMS: Final = 100
_SHOWN_FILES: Final = 20
_ALL: Final = "--format json lists them all"
_PACKED: Final = get_args(ArchiveFormat)
_CLOSED: Final = ", which imagegen does not open"
_VERSION_LABELS: Final = {
    "FileVersion": "",
    "ProductName": "",
    "ProductVersion": "product ",
    "CompanyName": "",
    "OriginalFilename": "as ",
}


def make_overrides(found: Inspection, name: str, url: str) -> dict[str, Override]:
    """The overrides that a download fits. `name` is its file name, which a program has on the machine."""
    names = _file_names(found) or {name, found.file.version.get("OriginalFilename", "")}
    signer = _common_signer(found)
    lines = {"url": url, "sha256": found.file.sha256, **({"signer": signer} if signer else {})}
    return dict.fromkeys(find_overrides(names - {""}, url, product=_product(found)), lines)


def _file_names(found: Inspection) -> set[str]:
    unclear = _unclear(found)
    return {name for path in found.members or () if (name := path.rpartition("/")[2]).lower() not in unclear}


def _unclear(found: Inspection) -> dict[str, list[str]]:
    """The programs of which an archive has two of one name, so that no override can take them from it."""
    return find_ambiguous({path: file.sha256 for path, file in (found.members or {}).items()})


def _product(found: Inspection) -> str:
    """The product that a package installs."""
    return found.file.version.get("ProductName", "") if found.file.type == "msi" else ""


def _signatures(found: Inspection) -> dict[str, FoundSignature]:
    """The verdict on each file that may be signed, by its path in the archive."""
    files = {"": found.file} if found.members is None else dict(sorted(found.members.items()))
    return {path: file.signature for path, file in files.items() if file.signature}


def _common_signer(found: Inspection) -> str:
    """The rule that allows every program; empty if one is not signed, or if there are several signers."""
    rules = {signature.rule for signature in _signatures(found).values()}
    return rules.pop() if len(rules) == 1 else ""


def inspection_json(found: Inspection, overrides: Mapping[str, Override]) -> dict[str, object]:
    """Everything, for programs."""
    whole = dataclasses.asdict(found)
    return {**whole["file"], "members": whole["members"], "overrides": overrides}


def inspection_lines(found: Inspection, overrides: Mapping[str, Override]) -> Iterator[str]:
    """What the file is, then each program in it, the other files, and the lines for a config."""
    file = found.file
    yield f"type       {NAMES.get(file.type, 'a file of another type')}"
    yield from _file_lines(file, "")
    if found.members is not None:
        programs = {path: one for path, one in sorted(found.members.items()) if one.signature or is_program(path)}
        others = {path: one for path, one in sorted(found.members.items()) if path not in programs}
        yield f"layout     {_layout(programs, others)}"
        for path, one in [*programs.items()][:_SHOWN_PROGRAMS]:
            yield from ("", path, *_file_lines(one, "  "))
        if len(programs) > _SHOWN_PROGRAMS:
            yield from ("", f"and {counted(len(programs) - _SHOWN_PROGRAMS, 'more program')}: {_ALL}")
        yield from _other_lines(others)
    yield from _override_lines(found, overrides)


def _layout(programs: Mapping[str, InspectedFile], others: Mapping[str, InspectedFile]) -> str:
    folders = {path.rpartition("/")[0] or "the root" for path in programs}
    where = f" in {' and '.join(sorted(folders))}" if 0 < len(folders) <= 3 else ""
    return f"{counted(len(programs), 'program')}{where}, {counted(len(others), 'other file')}"


def _file_lines(file: InspectedFile, lead: str) -> Iterator[str]:
    yield f"{lead}size       {counted(file.size, 'byte')}"
    yield f"{lead}sha256     {file.sha256}"
    if version := file.version:
        parts = [f"{label}{version[key]}" for key, label in _VERSION_LABELS.items() if key in version]
        yield f"{lead}version    {', '.join(parts)}"
    if file.signature:
        yield from _signature_lines(file.signature, lead)


def _signature_lines(found: FoundSignature, lead: str) -> Iterator[str]:
    yield f"{lead}signature  {found.verdict}: {found.reason}"
    stamp = f"{found.timestamp}, by {found.stamped_by}" if found.timestamp else ""
    # The chain begins with the signer, and ends with the root if it was found.
    between = found.chain[2:-1] if found.root else found.chain[2:]
    rows = (
        ("catalogue", found.catalogue),
        ("signer", found.signer),
        ("SHA-1", found.thumbprint),
        ("issuer", found.issuer),
        *(("above it", issuer) for issuer in between),
        # Of other faults, nobody has looked for the root.
        ("root", found.root or ("not found" if found.signer and found.verdict == "untrusted" else "")),
        ("timestamp", stamp or ("none" if found.signer else "")),
        ("hint", found.advice),
    )
    yield from (f"{lead}  {label:<9} {text}" for label, text in rows if text)


def _other_lines(others: Mapping[str, InspectedFile]) -> Iterator[str]:
    if not others:
        return
    yield from ("", "other files")
    # Not wrapped, so that a path can be copied.
    for path, one in [*others.items()][:_SHOWN_FILES]:
        closed = "" if one.type == "other" else f"  ({NAMES[one.type]}{_CLOSED if one.type in _PACKED else ''})"
        yield f"  {one.size:>12}  {one.sha256}  {path}{closed}"
    if len(others) > _SHOWN_FILES:
        yield f"  and {len(others) - _SHOWN_FILES} more: {_ALL}"


def _override_lines(found: Inspection, overrides: Mapping[str, Override]) -> Iterator[str]:
    for name, paths in _unclear(found).items():
        where = ", ".join(paths[:_SHOWN_FILES])
        yield from (
            "",
            f"imagegen takes no {name} from this archive, which has different files with this name: {where}",
        )
    yield ""
    if not overrides:
        yield "no override fits: `imagegen catalog overrides` lists the artifacts that a config can replace"
        return
    yield "lines for a config"
    yield "  overrides:"
    for name, override in overrides.items():
        yield f"    {name}:"
        for key, value in override.items():
            # As it is written in other alphabets, unless a letter of it is invisible.
            text = json.dumps(value, ensure_ascii=not value.isprintable())
            yield f"      {key}: {value if key == 'sha256' else text}"
        if "signer" not in override and (why := _why_no_signer(_signatures(found))):
            yield f"      # no signer: {why}"
        for program, other, always in find_missing(_file_names(found), name):
            yield f"      # {program} is not in it: set {other} too{'' if always else ', if the config needs it'}"


def _why_no_signer(signatures: Mapping[str, FoundSignature]) -> str:
    without = [
        f"{path}: {signature.verdict}".removeprefix(": ")
        for path, signature in signatures.items()
        if not signature.rule
    ]
    return without[0] if without else "the programs have several signers" if signatures else ""
