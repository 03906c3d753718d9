"""What `imagegen artifacts inspect` shows of a download, which override it fits, and what each override replaces."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

from imagegen.base.lines import counted
from imagegen.catalog.facts import table
from imagegen.config.schema import Known
from imagegen.fetch.request import is_archive
from imagegen.inspect.archive import NAMES, ArchiveFormat
from imagegen.inspect.members import find_ambiguous, is_program
from imagegen.plan import loading
from imagegen.rules.unimplemented import notes

if TYPE_CHECKING:
    from imagegen.inspect.inspect import InspectedFile, Inspection
    from imagegen.steps.model import ArtifactMeta, Step
    from imagegen.trust.messages import FoundSignature


@dataclasses.dataclass(frozen=True)
class ReplacedArtifact:
    """One artifact that an override replaces."""

    artifact: str
    step: str
    """The step that downloads it."""
    address: str
    """The public address that the override replaces."""
    file: str = ""
    """Its file name, if the override is a base URL or of one of the files of a base URL."""
    conditional: bool = False
    """Whether some configs do not need it."""

    def as_json(self) -> dict[str, str]:
        return {"artifact": self.artifact, "step": self.step, "address": self.address}


def overrides() -> dict[str, list[ReplacedArtifact]]:
    """Every override that a config may have, with the artifacts that it replaces."""
    found: dict[str, list[ReplacedArtifact]] = {}
    for step in loading.load_steps().values():
        for name, meta in step.meta.artifacts.items():
            file = (meta.path or "").rpartition("/")[2]
            artifact = ReplacedArtifact(name, step.name, meta.url or f"{meta.base}/{meta.path}", file, bool(meta.when))
            for override in meta.overrides:
                found.setdefault(override, []).append(artifact)
    return dict(sorted(found.items()))


def override_lines(found: Mapping[str, Sequence[ReplacedArtifact]], width: int) -> Iterator[str]:
    """Each override with the public addresses that it replaces."""
    for name, artifacts in found.items():
        yield from textwrap.wrap(f"{name}: {_content(artifacts)}", width, subsequent_indent="    ")
        # Not wrapped, so that an address can be copied.
        yield from dict.fromkeys(f"  {artifact.address}" for artifact in artifacts)


def _content(artifacts: Sequence[ReplacedArtifact]) -> str:
    """What the URL of an override must serve."""
    files = list(dict.fromkeys(artifact.file for artifact in artifacts if artifact.file))
    if len(files) > 1:
        used = " (those that the config uses)" if any(artifact.conditional for artifact in artifacts) else ""
        listed = f"{', '.join(files[:-1])} and {files[-1]}{used}"
        return f"a folder with {listed}, or of an archive with them, or a template with {{name}}"
    return f"{files[0]}, or of an archive with it" if files else artifacts[0].artifact


def known_facts() -> Known:
    """The facts about keys that are not in the model, but in the catalogue, the steps and the rules."""
    descriptions = {
        name: f"The https URL of {_content(artifacts)}, instead of the public one."
        for name, artifacts in overrides().items()
    }
    gates = {name: _describe_gate(row) for name, row in table("kubelet")["feature_gates"].items()}
    return Known(list(table("windows")["releases"]), descriptions, gates, notes())


def _describe_gate(row: Mapping[str, str | None]) -> str:
    """The Kubernetes versions that have a feature gate."""
    since = f"from {row['first']} " if row["first"] else ""
    until = f"up to {row['last']}" if row["last"] else "on"
    fixed = f"; it cannot be switched off from {row['locked']} on" if row["locked"] else ""
    return f"Kubernetes has it {since}{until}{fixed}."


_ITEM: Final = re.compile(r"\{\{\s*item\s*\}\}")
_LITERALS: Final = re.compile(r"\[[^\]]*\]")
# The facts that give the items of a list, with where a network plugin's row of the catalogue has them.
_FACTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[str]]]] = {
    "facts.cni_programs": lambda row: (name for names in row.get("programs", {}).values() for name in names),
    "facts.cni_archive": lambda row: (row.get("archive") or {}).get("programs", ()),
}


@dataclasses.dataclass
class _Wanted:
    """What an artifact must have: one name of each set of `all`; without any, one of `some`. In lower case."""

    all: list[set[str]] = dataclasses.field(default_factory=list)
    some: set[str] = dataclasses.field(default_factory=set)

    def fits(self, names: set[str]) -> bool:
        return all(one & names for one in self.all) if self.all else bool(self.some & names)


def find_overrides(names: Iterable[str], url: str, *, product: str = "") -> list[str]:
    """The overrides that a download fits which has files with these names, or is the package of this product."""
    have = {name.lower() for name in names}
    judged = [
        (meta, _wanted(step, artifact, meta).fits(have) or _is_package_of(product, step, artifact))
        for step in loading.load_steps().values()
        for artifact, meta in step.meta.artifacts.items()
    ]
    single = {meta.file_override if meta.base else meta.override for meta, fits in judged if fits}
    whole = set(_fitting_bases(judged)) if is_archive(url) else set()
    covered = {meta.file_override for meta, _ in judged if meta.override in whole}
    return [*sorted(whole), *sorted(name for name in single - covered if name)]


def find_missing(names: Iterable[str], base: str) -> Iterator[tuple[str, str, bool]]:
    """The programs of a base URL that an archive with these files lacks: each with the override that brings it, and
    whether every config needs it."""
    have = {name.lower() for name in names}
    for step in loading.load_steps().values():
        for meta in step.meta.artifacts.values():
            name = _name(str(meta.path))
            if meta.base and meta.override == base and meta.file_override and name not in have:
                yield name, meta.file_override, not step.meta.when


def _fitting_bases(judged: Sequence[tuple[ArtifactMeta, bool]]) -> Iterator[str]:
    """The base URLs that an archive fits: it has several of their files, or all if each has no override of its own."""
    bases: dict[str, list[tuple[ArtifactMeta, bool]]] = {}
    for meta, fits in judged:
        if meta.base and meta.override and is_program(str(meta.path)):
            bases.setdefault(meta.override, []).append((meta, fits))
    for base, files in bases.items():
        count = sum(fits for _, fits in files)
        if count == len(files) or (count > 1 and any(meta.file_override for meta, _ in files)):
            yield base


def _resources(step: Step, artifact: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The declared resources of an artifact: the kind, the fields, and the list of which each item is one."""
    for entry in step.resources.data if isinstance(step.resources.data, list) else ():
        for kind, fields in entry.items():
            if isinstance(fields, dict) and fields.get("artifact") == artifact:
                yield kind, fields, str(entry.get("each", ""))


def _is_package_of(product: str, step: Step, artifact: str) -> bool:
    """Whether the product is that of an artifact which is a package: the name of the artifact is part of its name."""
    return artifact in product.lower() and any(kind == "package" for kind, _, _ in _resources(step, artifact))


def _wanted(step: Step, artifact: str, meta: ArtifactMeta) -> _Wanted:
    wanted = _Wanted()
    if meta.base:
        wanted.all += [{_name(str(meta.path))}] if is_program(str(meta.path)) else []
        return wanted
    for kind, fields, each in _resources(step, artifact):
        if kind == "archive":
            wanted.all += [{_name(path)} for path in fields.get("expect", ())]
        if kind not in ("extract", "file"):
            continue
        # The name in the published archive, or that on the machine.
        names = {_name(str(fields.get(key, fields["path"]))) for key in ("member", "path")}
        if any("{{" in name for name in names):
            wanted.some |= {_ITEM.sub(item.lower(), name) for name in names for item in _items(each)}
        else:
            wanted.all.append(names)
    return wanted


def _items(each: str) -> Iterator[str]:
    """The items that a list may have."""
    for literal in _LITERALS.findall(each):
        yield from map(str, ast.literal_eval(literal))
    for fact, read in _FACTS.items():
        for row in table("cni")["plugins"].values() if fact in each else ():
            yield from read(row)


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1].lower()


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
