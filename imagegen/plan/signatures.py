"""What a config requires of the signatures of its downloads, and those that the machine must find. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.artifacts.lock import WHOLE_FILE
from imagegen.artifacts.signature_request import SignatureRequest, UsedFiles, is_covered
from imagegen.authenticode.signer import SignerRule, parse_signer
from imagegen.catalog.facts import table
from imagegen.config.artifact_policy import PinnedUrl, Signer
from imagegen.plan.model import PlannedSignature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imagegen.artifacts.lock import LockedArtifact
    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.config.model import ImageConfig
    from imagegen.steps.evaluate import Draft, EvaluatedStep

GENERAL_KEY: Final = "artifacts.signatures.signers"
_OVERRIDES: Final = "overrides."


def signature_requests(config: ImageConfig, evaluated: Iterable[EvaluatedStep]) -> dict[str, SignatureRequest]:
    """What must be signed in each artifact, and by whom, by the artifact's name. Container images have no such
    signatures. An override with a signer of its own must be signed even if nothing else must."""
    found: dict[str, SignatureRequest] = {}
    for step in evaluated:
        for name, artifact in step.requests.items():
            request = _signature_request(config, artifact) if artifact.form != "image" else None
            if request is None:
                continue
            used = _used_files(name, artifact, step.drafts)
            before = found[name].used if name in found else UsedFiles()
            found[name] = SignatureRequest(**{**vars(request), "used": before.merged(used)})
    return found


def _signature_request(config: ImageConfig, artifact: ArtifactRequest) -> SignatureRequest | None:
    policy = config.artifacts.signatures
    override = config.overrides.get(artifact.key.removeprefix(_OVERRIDES))
    own = override.signer if isinstance(override, PinnedUrl) else None
    if own is None and policy is None:
        return None
    general = policy.signers if policy else []
    return SignatureRequest(
        artifact=artifact.name,
        used=UsedFiles(),
        signers=tuple(_rule(signer) for signer in ([own] if own is not None else general)),
        key=f"{artifact.key}.signer" if own is not None else GENERAL_KEY,
        override=artifact.key,
        published="" if artifact.own else _known_unsigned(artifact),
        with_contents=bool(policy and policy.msi_contents) and artifact.form == "package",
    )


def _rule(signer: str | Signer) -> SignerRule:
    return parse_signer(signer if isinstance(signer, str) else signer.given())


def _known_unsigned(artifact: ArtifactRequest) -> str:
    """What is known to be unsigned where the artifact is published. Empty: it is signed, or nobody knows."""
    row = table("signers")["published"].get(artifact.key.removeprefix(_OVERRIDES))
    return str(row["what"]) if row and not row["signed"] else ""


def _used_files(name: str, artifact: ArtifactRequest, drafts: Iterable[Draft]) -> UsedFiles:
    """The files of an artifact that these resources put on the machine. Windows knows a file by its name there."""
    used = UsedFiles()
    # A URL has the name under which the file is published.
    published = artifact.url.partition("?")[0].rpartition("/")[2]
    for draft in drafts:
        fields = draft.fields
        if fields.get("artifact") != name:
            continue
        if draft.kind == "archive":
            used = used.merged(UsedFiles(strip=int(fields.get("strip", 0))))
        elif draft.kind == "extract":
            used = used.merged(UsedFiles({str(fields["member"]): _names(str(fields["path"]))}))
        else:
            names = _names(str(fields["path"])) if "path" in fields else frozenset({published})
            used = used.merged(UsedFiles({WHOLE_FILE: names}))
    return used


def _names(path: str) -> frozenset[str]:
    return frozenset({path.rpartition("\\")[2]})


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
                yield (
                    entry.sha256 if member == WHOLE_FILE else (entry.members or {})[member],
                    PlannedSignature(
                        signer=one.signer,
                        thumbprint=one.thumbprint,
                        root=one.root.subject,
                        root_thumbprint=one.root.thumbprint,
                        hidden=None if one.by == "own" else one.by,
                    ),
                )
