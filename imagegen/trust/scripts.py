"""Takes the operator's signed copies of the PowerShell scripts of an image, and finds the publishers of those in
downloads. Reads the folder of the copies.

Where only signed scripts run, Windows asks for the publisher of each: its certificate must be in TrustedPublisher, and
every script that it ever signed runs there. So the config must name it: a CA above it is not enough."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.certificates import read_certificate
from imagegen.authenticode.model import MalformedData
from imagegen.authenticode.signer import CertificatePattern
from imagegen.base.errors import ConfigError, VerificationError
from imagegen.base.files import read_file
from imagegen.base.lines import counted
from imagegen.config.own_files import GivenCertificate, OwnFile
from imagegen.plan.context import evaluate_steps
from imagegen.plan.resolve import needed_files
from imagegen.settle.spec import with_publishers
from imagegen.steps.kinds import PLANNED_AS
from imagegen.trust.block import is_script, is_signed, without_signature
from imagegen.trust.judge import make_script_judge
from imagegen.trust.messages import find_rule
from imagegen.trust.record import SignatureError, SignatureProblem, issuers_of, place, planned_signature
from imagegen.trust.sources import CrlUse, given_certificate

if TYPE_CHECKING:
    from imagegen.authenticode.model import Certificate
    from imagegen.fetch.lock import LockedArtifact, LockedSignature
    from imagegen.plan.model import PlannedSignature
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import EvaluatedStep
    from imagegen.steps.model import Step
    from imagegen.trust.judge import JudgedScript, ScriptJudge
    from imagegen.trust.policy import SignatureRequest
    from imagegen.trust.record import RecordedCertificate
    from imagegen.trust.shipped import Sources

SAMPLES: Final = "samples/"
_KEY: Final = ("artifacts", "signatures", "own_scripts", "from")
# Takes the place of the publishers while nobody has signed yet: they have the same kinds of resource.
_ANY_PUBLISHER: Final = GivenCertificate("CN=Publisher", "0" * 40, OwnFile("publisher.cer", b""))
# A signature block has some kilobytes.
_LARGEST: Final = 1024 * 1024
_MOST: Final = 2000
_SHOWN: Final = 20


@dataclasses.dataclass(frozen=True)
class ListedScript:
    """A script, as imagegen or the operator wrote it."""

    path: str
    data: bytes

    @property
    def on_image(self) -> bool:
        """Whether the build needs it. The others run in pods of the samples."""
        return not self.path.startswith(SAMPLES)


@dataclasses.dataclass(frozen=True)
class CopyFault:
    """Why a script has no signed copy that counts."""

    text: str
    summary: str
    """The same without the name of the script. Empty: the config has no folder of copies."""


@dataclasses.dataclass(frozen=True)
class SignedCopies:
    """The bytes of the signed scripts and their signatures by the path of the script, and why others have none."""

    data: Mapping[str, bytes]
    judged: Mapping[str, JudgedScript]
    faults: Mapping[str, CopyFault]


def find_copies(scripts: Sequence[ListedScript], folder: Path | None, judge: ScriptJudge) -> SignedCopies:
    """Find a signed copy of each script, whatever its name in the folder. A script that has a signature of its own
    needs no copy."""
    by_text: dict[str, tuple[str, bytes]] = {}
    by_path: dict[str, bytes] = {}
    for path, copy in _read(folder):
        by_path[path] = copy
        if is_signed(copy):
            by_text[_digest(copy)] = (str(folder / path) if folder else path, copy)
    data, good, faults = {}, {}, {}
    for script in scripts:
        own = (script.path, script.data) if is_signed(script.data) else None
        name, copy = by_text.get(_digest(script.data)) or own or ("", b"")
        if not copy:
            faults[script.path] = _absence(script.path, by_path.get(script.path), folder)
            continue
        judged = judge(name, copy)
        if judged.fault:
            faults[script.path] = _of_copy(name, judged.fault)
        else:
            data[script.path], good[script.path] = copy, judged
    return SignedCopies(data, good, faults)


def reject_unsigned(faults: Mapping[str, CopyFault], advice: str) -> None:
    """Scripts without a signature that counts are an error that names each."""
    if not faults:
        return
    lines = [f"{path}: {fault.text}" for path, fault in faults.items()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise VerificationError(
        f"{counted(len(lines), 'script')} cannot run under the execution policy AllSigned",
        details=[*lines[:_SHOWN], *more],
        hint=advice,
    )


def _read(folder: Path | None) -> Iterator[tuple[str, bytes]]:
    """The scripts below a folder. No link is followed."""
    if folder is None or not folder.is_dir():
        return
    files = [path for path in sorted(folder.rglob("*")) if is_script(path.name) and not path.is_symlink()]
    if len(files) > _MOST:
        raise VerificationError(
            f"{folder} has {len(files)} scripts, at most {_MOST} are allowed", hint="use a folder of its own for them"
        )
    for path in files:
        yield path.relative_to(folder).as_posix(), read_file(path, limit=_LARGEST, error=VerificationError)


def _digest(data: bytes) -> str:
    return _sha256(without_signature(data))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _of_copy(name: str, fault: str) -> CopyFault:
    return CopyFault(f"{name} {fault}", f"the copy {fault}")


def _absence(path: str, found: bytes | None, folder: Path | None) -> CopyFault:
    if folder is None:
        return CopyFault("it has no signed copy", "")
    if not folder.is_dir():
        return CopyFault(*[f"the folder {folder} does not exist"] * 2)
    if found is None:
        return CopyFault(f"{folder} has no signed copy of it", f"{folder} has no signed copy")
    if not is_signed(found):
        return _of_copy(str(folder / path), "is not signed")
    return _of_copy(
        str(folder / path),
        "has another text: it is of another version of imagegen, or was changed before it was signed",
    )


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
    """The scripts to sign, sorted by path: those of the steps, of the engine and of the cloud. `samples` are those that
    run in pods."""
    evaluated = evaluate_steps(with_publishers(spec, [_ANY_PUBLISHER]), steps)
    kinds = {PLANNED_AS.get(draft.kind, draft.kind) for step in evaluated for draft in step.drafts}
    if "archive" in kinds:
        # An override can have a layout of its own. Then the plan has single files instead of the archive.
        kinds.add("file")
    texts = {path: text for step in evaluated for path, text in step.texts.items()}
    in_pods = {SAMPLES + path: data for path, data in samples.items()}
    sent = {path: data for path, data in sources.scripts.items() if path.rpartition("/")[2] not in sources.boot_names}
    files = {**needed_files(sources.guest, kinds), **texts, **sent, **in_pods}
    return tuple(ListedScript(path, files[path]) for path in sorted(files) if is_script(path))


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
    return find_copies(scripts, copies_folder(spec), make_script_judge(spec, now, CrlUse() if crls is None else crls))


def sign_scripts(
    spec: Spec, steps: Mapping[str, Step], sources: Sources, advice: str, downloads: LockedDownloads, crls: CrlUse
) -> SignedScripts:
    """Take the signed copies. One error names all scripts without a signature that counts. The publishers are theirs,
    and those of the scripts in downloads."""
    found = look_for_copies(list_own_scripts(spec, steps, sources, {}), spec, crls)
    reject_unsigned(found.faults, advice)
    records = {path: judged.record for path, judged in found.judged.items() if judged.record}
    known = {_publisher(record) for record in records.values()}
    publishers = downloads.find_publishers(known)
    signed = with_publishers(spec, [given_certificate(publishers[sha1]) for sha1 in sorted(publishers)])
    evaluated = tuple(_with_copies(step, found.data) for step in evaluate_steps(signed, steps))
    # PowerShell itself checks the others, when Packer runs them.
    bundled = found.data.keys() - sources.scripts.keys()
    planned = {_sha256(found.data[path]): planned_signature(records[path]) for path in sorted(bundled)}
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


@dataclasses.dataclass(frozen=True)
class LockedDownloads:
    """What must be signed in the downloads, and what the lock says about them, by their names."""

    requests: Mapping[str, SignatureRequest]
    artifacts: Mapping[str, LockedArtifact]

    def find_publishers(self, known: Collection[Certificate]) -> dict[str, Certificate]:
        """The certificates that signed the scripts, by their SHA-1, with the known publishers. One error has all
        scripts that the nodes would not run."""
        found, problems = {one.sha1: one for one in known}, []
        for request, member, signature in self._scripts():
            judged = _find_publisher(request, member, signature, known)
            if isinstance(judged, SignatureProblem):
                problems.append(judged)
            else:
                found[judged.sha1] = judged
        if problems:
            raise SignatureError(problems)
        return found

    def _scripts(self) -> Iterator[tuple[SignatureRequest, str, LockedSignature | None]]:
        for name in sorted(self.requests.keys() & self.artifacts.keys()):
            request, entry = self.requests[name], self.artifacts[name]
            for member, names in sorted(request.used.select(entry.members).items()):
                if any(is_script(one) for one in names):
                    yield request, member, (entry.signed or {}).get(member)


def _find_publisher(
    request: SignatureRequest, member: str, signature: LockedSignature | None, known: Collection[Certificate]
) -> Certificate | SignatureProblem:
    where, again = place(request.artifact, member), f"run `imagegen lock CONFIG --upgrade {request.artifact}`"
    if signature is None:
        return SignatureProblem(f"{where} has no signature in the lock, and the nodes run only signed scripts", again)
    if signature.by != "own":
        how = "a catalogue" if signature.by == "catalogue" else "a nested signature"
        message = f"{where} is signed only by {how}, which PowerShell does not see on the nodes"
        return SignatureProblem(message, f"set {request.override} to a copy whose scripts have signatures of their own")
    try:
        publisher = _publisher(signature)
    except MalformedData:
        return SignatureProblem(f"the lock does not have the certificate that signed {where}", again)
    issuers = _issuers(signature)
    if publisher in known or _is_named(request, publisher, issuers):
        return publisher
    return _unnamed(request, where, publisher, find_rule(publisher, issuers))


def _publisher(record: LockedSignature) -> Certificate:
    """The certificate that signed a script."""
    return read_certificate(base64.b64decode(record.certificate or ""))


def _issuers(signature: LockedSignature) -> tuple[RecordedCertificate, ...]:
    try:
        return issuers_of(signature)
    except ValueError:
        # A certificate may have no name. Then no rule about a CA matches.
        return ()


def _is_named(request: SignatureRequest, publisher: Certificate, issuers: Sequence[RecordedCertificate]) -> bool:
    """Whether a rule is about this signer, and not only about a CA above it."""
    return any(
        condition.signer != CertificatePattern() and not condition.differences(publisher, issuers)
        for rule in request.signers
        for condition in rule.conditions
    )


def _unnamed(request: SignatureRequest, where: str, publisher: Certificate, rule: str) -> SignatureProblem:
    in_yaml = "'" + rule.replace("'", "''") + "'"
    # The signer of an override is one, those of the section are a list.
    if request.has_own_signer:
        advice = f"set {request.key} to {in_yaml}"
    elif request.signers:
        advice = f"add {in_yaml} to {request.key}"
    else:
        # Without a list everybody may sign. With one, nobody else.
        advice = f"list {in_yaml} and everybody else who may sign in {request.key}"
    return SignatureProblem(
        f"{where} is signed by {publisher.subject}, whom {request.key} does not name: "
        "with artifacts.signatures.own_scripts, every script that this publisher ever signed would run on the nodes",
        f"if they may, {advice}; if not, set {request.override} to a copy that your own signer signed",
    )
