"""Judges the operator's own programs and scripts as downloads are judged: the files of own steps, and those that the
config names. Writes them to a folder meanwhile, which is removed."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.trust.block import is_script
from imagegen.trust.policy import general_signers, planned_signature, trust_sources
from imagegen.trust.signature_request import SignatureError, SignatureRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from imagegen.authenticode.model import Trust
    from imagegen.plan.model import PlannedSignature
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import Draft, EvaluatedStep
    from imagegen.trust.crl_use import CrlUse

_KEY: Final = "artifacts.signatures.signers"
# As much as tells a program.
_START: Final = 16


@dataclasses.dataclass(frozen=True)
class OwnFiles:
    """The files of one step, or the one that a key of the config names, by their paths in messages. `names` are those
    that they have on the machine: Windows knows a file by its name."""

    request: SignatureRequest
    data: Mapping[str, bytes]
    names: Mapping[str, frozenset[str]]


@dataclasses.dataclass(frozen=True)
class _Names:
    """All of the files, by their paths."""

    names: Mapping[str, frozenset[str]]

    def select(self, _members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        return dict(self.names)


@dataclasses.dataclass(frozen=True)
class _OwnFile:
    """A file of the operator's. `group` says where it comes from, and `key` what names another one in its place."""

    group: str
    key: str
    path: str
    name: str
    data: bytes


def find_own_files(spec: Spec, steps: Iterable[EvaluatedStep], own_roots: Collection[Path]) -> tuple[OwnFiles, ...]:
    """The operator's own files that the policy covers. `own_roots` are the folders of own steps.

    With signed copies of scripts, the others are left: who may have signed a script is judged with its copy."""
    policy = spec.config.artifacts.signatures
    if policy is None:
        return ()
    groups: dict[tuple[str, str], list[_OwnFile]] = {}
    for step in steps:
        is_own = any(step.step.folder.is_relative_to(root) for root in own_roots)
        for draft in step.drafts:
            if not (spec.facts.all_signed and is_script(str(draft.fields.get("source")))):
                for file in _own_files(step, draft, is_own=is_own):
                    groups.setdefault((file.group, file.key), []).append(file)
    return tuple(_group(spec, group, key, files) for (group, key), files in groups.items())


def _own_files(step: EvaluatedStep, draft: Draft, *, is_own: bool) -> Iterator[_OwnFile]:
    """The file of a resource, if the operator gave it."""
    source = str(draft.fields.get("source"))
    if source not in step.texts:
        return
    data, inside = step.texts[source], source.removeprefix(f"files/{step.step.name}/")
    given = step.given.get(source)
    name = str(draft.fields.get("path", inside)).replace("\\", "/").rpartition("/")[2]
    if given:
        yield _OwnFile(given.key, given.key, given.name, name, data)
    elif is_own:
        # A template leaves no signature as it was.
        source_key = "source" if inside in step.step.files else "source in place of template"
        key = f"{source_key} in {step.step.shown_as}/resources.yml"
        yield _OwnFile(f"step {step.step.name}", key, inside, name, data)


def _group(spec: Spec, group: str, key: str, files: list[_OwnFile]) -> OwnFiles:
    names: dict[str, frozenset[str]] = {}
    for file in files:
        names[file.path] = names.get(file.path, frozenset()) | {file.name}
    request = SignatureRequest(
        artifact=group,
        used=_Names(names),
        signers=general_signers(spec.config),
        key=_KEY,
        override=key,
    )
    return OwnFiles(request, {file.path: file.data for file in files}, names)


def trust_without_downloads(spec: Spec, crls: CrlUse) -> Trust:
    """What the config trusts now. The CRLs in files count, and those that were downloaded for this run: a plan
    downloads nothing."""
    from imagegen.authenticode.trust import load_trust

    sources = trust_sources(spec)
    roots = [] if sources.roots is None else [sources.roots]
    crls.add(sources.crl_files)
    now = datetime.datetime.now(datetime.UTC)
    return load_trust(now=now, roots=roots, crls=crls.data.values(), strength=sources.strength)


def check_own_files(
    found: Iterable[OwnFiles], load_trust: Callable[[], Trust], crls: CrlUse
) -> dict[str, PlannedSignature]:
    """The signatures of the programs and scripts by their sha256. One error has all that is wrong. `crls` learns which
    CRLs are about them."""
    found = list(found)
    if not found:
        return {}
    # Few configs have such files, and what verifies signatures takes long to import.
    from imagegen.trust.signatures import check_files, may_be_program

    programs = [
        one for one in found if any(may_be_program(one.names[path], data[:_START]) for path, data in one.data.items())
    ]
    if not programs:
        return {}
    trust, scratch = load_trust(), Path(tempfile.gettempdir())
    checked = [(one, check_files(one.request, one.data, trust, scratch)) for one in programs]
    crls.note(chain for _, result in checked for chain in result.chains)
    # Targets share most of them.
    if problems := dict.fromkeys(problem for _, result in checked for problem in result.problems):
        raise SignatureError(problems)
    return {
        hashlib.sha256(one.data[path]).hexdigest(): planned_signature(signature)
        for one, result in checked
        for path, signature in result.signed.items()
    }
