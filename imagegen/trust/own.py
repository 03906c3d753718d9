"""Puts the operator's signed copies in the place of the scripts of a plan. Reads only their folder."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError
from imagegen.config.own_files import GivenCertificate, OwnFile
from imagegen.plan.context import evaluate_steps
from imagegen.plan.model import PlannedSignature
from imagegen.settle.spec import with_publishers
from imagegen.trust.copies import find_copies, reject_unsigned
from imagegen.trust.crl_use import CrlUse
from imagegen.trust.judge import make_judge
from imagegen.trust.listing import SAMPLES, ListedScript, list_scripts
from imagegen.trust.root_files import given_certificate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.authenticode.model import Signature
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import EvaluatedStep
    from imagegen.steps.model import Step
    from imagegen.trust.copies import SignedCopies
    from imagegen.trust.listing import Sources
    from imagegen.trust.publishers import LockedDownloads

_KEY: Final = ("artifacts", "signatures", "own_scripts", "from")
# Takes the place of the publishers while nobody has signed yet: they have the same kinds of resource.
_ANY_PUBLISHER: Final = GivenCertificate("CN=Publisher", "0" * 40, OwnFile("publisher.cer", b""))


@dataclasses.dataclass(frozen=True)
class SignedScripts:
    """The spec and the steps with the signed scripts, and the signatures of those in the bundle by their sha256."""

    spec: Spec
    steps: tuple[EvaluatedStep, ...]
    data: Mapping[str, bytes]
    signatures: Mapping[str, PlannedSignature]

    def take(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """These files, with the signed copies of those that are scripts."""
        return {path: self.data.get(path, data) for path, data in files.items()}


def list_own_scripts(
    spec: Spec, steps: Mapping[str, Step], sources: Sources, samples: Mapping[str, bytes]
) -> tuple[ListedScript, ...]:
    """The scripts to sign. `samples` are those that run in pods."""
    return list_scripts(evaluate_steps(with_publishers(spec, [_ANY_PUBLISHER]), steps), sources, samples)


def copies_folder(spec: Spec) -> Path | None:
    """The folder with the signed copies. None if the config names none."""
    signatures = spec.config.artifacts.signatures
    if signatures is None or signatures.own_scripts is None:
        return None
    place = spec.document.place(_KEY)
    beside = Path(place.file if place.line else spec.document.file).parent
    folder = beside / signatures.own_scripts["from"]
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(beside)):
        problem = spec.document.problem(_KEY, f"{folder} is outside {beside}", "write a path below the config's folder")
        raise ConfigError("the signed scripts cannot be used", problems=[problem])
    return folder


def look_for_copies(scripts: Sequence[ListedScript], spec: Spec, crls: CrlUse | None = None) -> SignedCopies:
    """The signed copies of these scripts as they are now. Of the CRLs those in files count, and those of `crls`."""
    now = datetime.datetime.now(datetime.UTC)
    return find_copies(scripts, copies_folder(spec), make_judge(spec, now, CrlUse() if crls is None else crls))


def sign_scripts(
    spec: Spec, steps: Mapping[str, Step], sources: Sources, advice: str, downloads: LockedDownloads, crls: CrlUse
) -> SignedScripts:
    """Take the signed copies. One error names all scripts without a signature that counts. The publishers are theirs,
    and those of the scripts in downloads."""
    found = look_for_copies(list_own_scripts(spec, steps, sources, {}), spec, crls)
    reject_unsigned(found.faults, advice)
    known = {one.signer.sha1: one.signer for one in found.signatures.values() if one.signer}
    publishers = downloads.find_publishers(known.values())
    signed = with_publishers(spec, [given_certificate(publishers[sha1]) for sha1 in sorted(publishers)])
    evaluated = tuple(_with_copies(step, found.data) for step in evaluate_steps(signed, steps))
    # PowerShell itself checks the others, when Packer runs them.
    bundled = found.data.keys() - sources.scripts.keys()
    planned = {_sha256(found.data[path]): _planned(found.signatures[path]) for path in sorted(bundled)}
    return SignedScripts(signed, evaluated, found.data, planned)


def sign_samples(spec: Spec, samples: Mapping[str, bytes], advice: str) -> dict[str, bytes]:
    """The signed copies of the scripts of samples, by their names."""
    scripts = [ListedScript(SAMPLES + name, samples[name]) for name in sorted(samples)]
    found = look_for_copies(scripts, spec)
    reject_unsigned(found.faults, advice)
    return {path.removeprefix(SAMPLES): data for path, data in found.data.items()}


def _with_copies(step: EvaluatedStep, copies: Mapping[str, bytes]) -> EvaluatedStep:
    drafts = tuple(
        dataclasses.replace(draft, fields={**draft.fields, "sha256": _sha256(copies[source])})
        if (source := str(draft.fields.get("source"))) in copies
        else draft
        for draft in step.drafts
    )
    texts = {path: copies.get(path, text) for path, text in step.texts.items()}
    return dataclasses.replace(step, drafts=drafts, texts=texts)


def _planned(signature: Signature) -> PlannedSignature:
    signer, root = signature.signer, signature.root
    if signer is None or root is None:
        raise ValueError("a valid signature has a signer and a root")
    timestamp_root = signature.timestamp_root
    return PlannedSignature(
        signer=str(signer.subject),
        thumbprint=signer.sha256.lower(),
        root=str(root.subject),
        root_thumbprint=root.sha256.lower(),
        timestamp_root=str(timestamp_root.subject) if timestamp_root else None,
        timestamp_root_thumbprint=timestamp_root.sha256.lower() if timestamp_root else None,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
