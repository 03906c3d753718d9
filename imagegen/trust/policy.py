"""What a config requires of the signatures of its downloads, and those that the machine must find. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from imagegen.authenticode.model import SignerStrength
from imagegen.authenticode.signer import SignerRule, parse_signer
from imagegen.base.errors import WARNING
from imagegen.catalog.facts import table
from imagegen.config.artifact_policy import PinnedUrl, Signer, is_url
from imagegen.fetch.lock import WHOLE_FILE, LockedArtifact
from imagegen.inspect.members import file_name
from imagegen.plan.fitting import UnfitError, fit, stripped
from imagegen.plan.model import PlannedSignature
from imagegen.trust.signature_request import SignatureRequest, TrustSources, is_covered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imagegen.base.errors import Problem
    from imagegen.config.model import ImageConfig
    from imagegen.config.yaml import Document
    from imagegen.fetch.lock import LockedSignature
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.plan.model import PlannedResource
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import Draft, EvaluatedStep
    from imagegen.trust.signature_request import UsedFiles

_SECTION: Final = "artifacts.signatures"
_GENERAL_KEY: Final = f"{_SECTION}.signers"
_OVERRIDES: Final = "overrides."


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
    override = config.overrides.get(artifact.key.removeprefix(_OVERRIDES))
    own = override.signer if isinstance(override, PinnedUrl) else None
    if own is None and policy is None:
        return None
    row = None if artifact.own else _published_row(artifact.key)
    general = general_signers(config)
    return SignatureRequest(
        artifact=artifact.name,
        used=used,
        signers=(_rule(own),) if own is not None else general,
        key=f"{artifact.key}.signer" if own is not None else _GENERAL_KEY if general else _SECTION,
        override=artifact.key,
        published=str(row["what"]) if row and _is_unsigned(artifact.key) else "",
        signed_by=str(row.get("by", "")) if row else "",
        with_strength=_signer_strength(config) != SignerStrength(),
    )


def _signer_strength(config: ImageConfig) -> SignerStrength:
    policy = config.artifacts.signatures
    return SignerStrength(policy.least_rsa_bits, policy.sha1_certificates) if policy else SignerStrength()


def general_signers(config: ImageConfig) -> tuple[SignerRule, ...]:
    """Who may sign everything without a signer of its own."""
    policy = config.artifacts.signatures
    return tuple(map(_rule, policy.signers)) if policy else ()


def _rule(signer: str | Signer) -> SignerRule:
    return parse_signer(signer if isinstance(signer, str) else signer.given())


def _published_row(key: str) -> Mapping[str, Any] | None:
    """What is known of the signatures of an artifact where it is published. None: nobody knows."""
    row: Mapping[str, Any] | None = table("signers")["published"].get(key.removeprefix(_OVERRIDES))
    return row


def _is_unsigned(key: str) -> bool:
    row = _published_row(key)
    return row is not None and not row["signed"]


def find_unsigned(requests: Iterable[ArtifactRequest]) -> list[str]:
    """The artifacts that nobody signs where they are published: no policy can accept them."""
    return sorted({request.name for request in requests if not request.own and _is_unsigned(request.key)})


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
    if request.published:
        return f"published without a signature, but {request.key} requires one", _hint_for_unsigned(request)
    name = request.signed_by
    if not name or not request.signers or any(_may_match(rule, name) for rule in request.signers):
        return None
    return (
        f"published with a signature of {name}, who is not in {request.key}",
        f"write {{url: …, signer: …}} to {request.override}: `imagegen artifacts inspect URL` shows both lines",
    )


def _hint_for_unsigned(request: SignatureRequest) -> str:
    signed = (_published_row(request.override) or {}).get("by_microsoft")
    is_allowed = any(_may_match(rule, "Microsoft") for rule in request.signers)
    copy = f'"{signed}"' if signed and is_allowed else "a signed copy"
    return f"set {request.override} to {copy}"


def _may_match(rule: SignerRule, name: str) -> bool:
    """Whether a rule may match certificates of this company. Not if it asks for another CN or O."""
    asked = (one.signer.attributes for one in rule.conditions)
    named = ([value for kind, value in one if kind in ("CN", "O")] for one in asked)
    return any(not values or any(name.lower() in value.lower() for value in values) for values in named)


def trust_sources(spec: Spec) -> TrustSources:
    """The roots and the CRLs of a config."""
    policy, files = spec.config.artifacts.signatures, spec.own_files
    if policy is None:
        return TrustSources()
    roots = files.get(f"{_SECTION}.roots")
    crls = {crl: files.get(f"{_SECTION}.crls[{at}]") for at, crl in enumerate(policy.crls)}
    return TrustSources(
        roots=roots.data if roots else None,
        crl_files={name: file.data for name, file in crls.items() if file},
        crl_urls=tuple(name for name in crls if is_url(name)),
        strength=_signer_strength(spec.config),
    )


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


def planned_signature(found: LockedSignature) -> PlannedSignature:
    """The signature that the machine must find, if Windows shows it."""
    return PlannedSignature(
        signer=found.signer,
        thumbprint=found.thumbprint,
        root=found.root.subject,
        root_thumbprint=found.root.thumbprint,
        timestamp_root=found.timestamp_root.subject if found.timestamp_root else None,
        timestamp_root_thumbprint=found.timestamp_root.thumbprint if found.timestamp_root else None,
        hidden=None if found.by == "own" else found.by,
    )
