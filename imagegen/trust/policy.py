"""What a config requires of signatures: of its downloads, and of the operator's own files. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Final, Protocol

from imagegen.base.errors import WARNING
from imagegen.catalog.products import Signing, find_signing
from imagegen.fetch.lock import WHOLE_FILE, LockedArtifact
from imagegen.inspect.members import file_name
from imagegen.plan.fitting import UnfitError, fit, stripped
from imagegen.trust.block import is_script
from imagegen.trust.record import is_covered, planned_signature

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from imagegen.authenticode.signer import SignerRule
    from imagegen.base.errors import Problem
    from imagegen.config.model import ImageConfig
    from imagegen.config.yaml import Document
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.plan.model import PlannedResource, PlannedSignature
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import Draft, EvaluatedStep

_SECTION: Final = "artifacts.signatures"
_GENERAL_KEY: Final = f"{_SECTION}.signers"
_OVERRIDES: Final = "overrides."


class UsedFiles(Protocol):
    """The files of an artifact that the image gets."""

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        """Those of an archive's members, each with its names on the machine. None: it is no archive. Then it is itself
        WHOLE_FILE."""


@dataclasses.dataclass(frozen=True)
class SignatureRequest:
    """What must be signed in an artifact, and by whom. Without `signers`, everybody with a trusted root may sign."""

    artifact: str
    used: UsedFiles
    signers: tuple[SignerRule, ...]
    key: str
    """The config's key that requires the signature."""
    override: str
    """The config's key that replaces the artifact, for hints."""
    published: Signing | None = None
    """What is known of the signatures of the published artifact. None: nothing, or the config has its own source."""
    with_strength: bool = False
    """Whether the config requires more of the certificates of signers than a lock has of them."""
    has_own_signer: bool = False
    """Whether `key` is the one signer of an override, and not a list."""

    @property
    def allowed(self) -> str:
        """Who may sign, in words."""
        return " or ".join(rule.text for rule in self.signers) or "a signature that leads to a trusted root"


@dataclasses.dataclass(frozen=True)
class _UsedFiles:
    """The files that resources put on the machine. Windows knows a file by its name there."""

    uses: tuple[tuple[ArtifactRequest, Draft], ...]

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        """As the plan takes them from this archive, or from the file itself."""
        # Only its members matter here, and there may be many: they are not validated again.
        known = None if members is None else dict(members)
        artifact = LockedArtifact.model_construct(url="", sha256="", size=0, members=known)
        found: dict[str, set[str]] = {}
        for request, draft in self.uses:
            # An archive without the file that a resource needs is reported where the plan is made.
            with contextlib.suppress(UnfitError):
                for kind, fields in fit(draft.kind, dict(draft.fields), artifact, request):
                    for member, name in _files(kind, fields, members, request):
                        found.setdefault(member, set()).add(name)
        return {member: frozenset(names) for member, names in found.items()}


def _files(
    kind: str, fields: Mapping[str, Any], members: Mapping[str, str] | None, request: ArtifactRequest
) -> Iterator[tuple[str, str]]:
    """The files of an artifact that one resource takes, each with its name on the machine."""
    if kind == "archive":
        depth, placed = int(fields["strip"]), {one["path"] for one in fields["members"]}
        yield from ((path, file_name(path)) for path in members or () if stripped(path, depth) in placed)
    elif kind == "extract":
        yield str(fields["member"]), _name(fields)
    else:
        # A package has no path of its own: it is installed from the download.
        yield WHOLE_FILE, _name(fields) if "path" in fields else file_name(request.url)


def _name(fields: Mapping[str, Any]) -> str:
    return str(fields["path"]).rpartition("\\")[2]


def signature_requests(config: ImageConfig, evaluated: Iterable[EvaluatedStep]) -> dict[str, SignatureRequest]:
    """What must be signed in each artifact, and by whom, by the artifact's name. Container images have no such
    signatures. An override with a signer of its own must be signed even if nothing else must."""
    uses: dict[str, list[tuple[ArtifactRequest, Draft]]] = {}
    for step in evaluated:
        for draft in step.drafts:
            request = step.requests.get(str(draft.fields.get("artifact")))
            if request is not None and request.form != "image":
                uses.setdefault(request.name, []).append((request, draft))
    made = {name: _signature_request(config, found[0][0], _UsedFiles(tuple(found))) for name, found in uses.items()}
    return {name: request for name, request in made.items() if request is not None}


def _signature_request(config: ImageConfig, artifact: ArtifactRequest, used: UsedFiles) -> SignatureRequest | None:
    policy = config.artifacts.signatures
    if artifact.signer is None and policy is None:
        return None
    general, strength = general_signers(config), policy and (policy.least_rsa_bits, policy.sha1_certificates)
    return SignatureRequest(
        artifact=artifact.name,
        used=used,
        signers=(artifact.signer,) if artifact.signer else general,
        key=f"{artifact.key}.signer" if artifact.signer else _GENERAL_KEY if general else _SECTION,
        override=artifact.key,
        published=None if artifact.own else find_signing(artifact.key.removeprefix(_OVERRIDES)),
        with_strength=strength not in (None, (None, True)),
        has_own_signer=artifact.signer is not None,
    )


def general_signers(config: ImageConfig) -> tuple[SignerRule, ...]:
    """Who may sign everything without a signer of its own."""
    policy = config.artifacts.signatures
    return tuple(one.rule for one in policy.signers) if policy else ()


def find_unsigned(requests: Iterable[ArtifactRequest]) -> list[str]:
    """The artifacts that nobody signs where they are published: no policy can accept them."""
    known = ((one.name, find_signing(one.key.removeprefix(_OVERRIDES))) for one in requests if not one.own)
    return sorted({name for name, signing in known if signing and not signing.signed})


def merge_requests(targets: Iterable[Mapping[str, SignatureRequest]]) -> dict[str, SignatureRequest]:
    """What must be signed for several targets, which share a lock: each file that one of them gets."""
    found: dict[str, SignatureRequest] = {}
    for name, request in (item for requests in targets for item in requests.items()):
        before = found.get(name)
        used = _AnyOf((before.used, request.used)) if before else request.used
        found[name] = dataclasses.replace(request, used=used)
    return found


@dataclasses.dataclass(frozen=True)
class _AnyOf:
    """The files of several."""

    parts: tuple[UsedFiles, ...]

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for member, names in (item for part in self.parts for item in part.select(members).items()):
            found[member] = found.get(member, frozenset()) | names
        return found


def unsigned_downloads(requests: Iterable[SignatureRequest], document: Document) -> Iterator[Problem]:
    """A warning for each published artifact that is known to have no signature of an allowed signer."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for request in requests:
        if why := _why_refused(request):
            found.setdefault((request.override, *why), set()).add(request.artifact)
    for (_, reason, hint), names in sorted(found.items()):
        problem = document.problem(("artifacts", "signatures"), f"{', '.join(sorted(names))}: {reason}", hint)
        yield dataclasses.replace(problem, severity=WARNING)


def _why_refused(request: SignatureRequest) -> tuple[str, str] | None:
    """Why the published artifact will be refused, as far as that is known, and a hint."""
    published = request.published
    if published is None:
        return None
    if not published.signed:
        is_allowed = any(_may_match(rule, "Microsoft") for rule in request.signers)
        copy = f'"{published.by_microsoft}"' if published.by_microsoft and is_allowed else "a signed copy"
        return f"published without a signature, but {request.key} requires one", f"set {request.override} to {copy}"
    if not published.by or not request.signers or any(_may_match(rule, published.by) for rule in request.signers):
        return None
    return (
        f"published with a signature of {published.by}, who is not in {request.key}",
        f"write {{url: …, signer: …}} to {request.override}: `imagegen artifacts inspect URL` shows both lines",
    )


def _may_match(rule: SignerRule, name: str) -> bool:
    """Whether a rule may match certificates of this company. Not if it asks for another CN or O."""
    asked = (one.signer.attributes for one in rule.conditions)
    named = ([value for kind, value in one if kind in ("CN", "O")] for one in asked)
    return any(not values or any(name.lower() in value.lower() for value in values) for values in named)


def find_unchecked(requests: Mapping[str, SignatureRequest], artifacts: Mapping[str, LockedArtifact]) -> set[str]:
    """The artifacts whose signatures the lock does not have for every file that the image gets."""
    return {name for name, one in requests.items() if name not in artifacts or not is_covered(one, artifacts[name])}


def plan_signatures(
    requests: Mapping[str, SignatureRequest], artifacts: Mapping[str, LockedArtifact]
) -> Mapping[str, PlannedSignature]:
    """The signature of each program that must be signed, by the sha256 of the program."""
    return dict(_planned(requests, artifacts))


def _planned(
    requests: Mapping[str, SignatureRequest], artifacts: Mapping[str, LockedArtifact]
) -> Iterator[tuple[str, PlannedSignature]]:
    for name, request in sorted(requests.items()):
        entry = artifacts[name]
        for member in request.used.select(entry.members):
            if one := (entry.signed or {}).get(member):
                yield entry.sha256 if member == WHOLE_FILE else (entry.members or {})[member], planned_signature(one)


def find_exempt(
    requests: Mapping[str, SignatureRequest],
    artifacts: Mapping[str, LockedArtifact],
    resources: Iterable[PlannedResource],
) -> tuple[str, ...]:
    """The sha256 of the files of downloads that need no signature: all of an artifact that needs none, and those that
    the lock calls no programs. Empty if no artifact needs one."""
    found: set[str] = set()
    for resource in resources if requests else ():
        name = str(resource.fields.get("artifact"))
        if name not in artifacts:
            continue
        entry = artifacts[name]
        digests = {WHOLE_FILE: entry.sha256, **(entry.members or {})}
        used = {*resource.downloaded.values()} or {entry.sha256}
        found |= {digests[one] for one in entry.not_programs} & used if name in requests else used
    return tuple(sorted(found))


@dataclasses.dataclass(frozen=True)
class OwnFiles:
    """The files of one step, or the one that a key of the config names, by their paths in messages."""

    request: SignatureRequest
    data: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True)
class _Names:
    """All of the files, by their paths, with the names that they have on the machine."""

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
            is_copied = spec.facts.all_signed and is_script(str(draft.fields.get("source")))
            if not is_copied and (file := _own_file(step, draft, is_own=is_own)):
                groups.setdefault((file.group, file.key), []).append(file)
    return tuple(_group(spec, group, key, files) for (group, key), files in groups.items())


def _own_file(step: EvaluatedStep, draft: Draft, *, is_own: bool) -> _OwnFile | None:
    """The file of a resource, if the operator gave it."""
    source = str(draft.fields.get("source"))
    given = step.given.get(source)
    if source not in step.texts or not (given or is_own):
        return None
    data, inside = step.texts[source], source.removeprefix(f"files/{step.step.name}/")
    name = str(draft.fields.get("path", inside)).replace("\\", "/").rpartition("/")[2]
    if given:
        return _OwnFile(given.key, given.key, given.name, name, data)
    # A template leaves no signature as it was.
    source_key = "source" if inside in step.step.files else "source in place of template"
    return _OwnFile(f"step {step.step.name}", f"{source_key} in {step.step.shown_as}/resources.yml", inside, name, data)


def _group(spec: Spec, group: str, key: str, files: list[_OwnFile]) -> OwnFiles:
    names: dict[str, frozenset[str]] = {}
    for file in files:
        names[file.path] = names.get(file.path, frozenset()) | {file.name}
    request = SignatureRequest(group, _Names(names), general_signers(spec.config), _GENERAL_KEY, override=key)
    return OwnFiles(request, {file.path: file.data for file in files})
