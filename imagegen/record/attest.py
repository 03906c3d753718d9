"""Attests a manifest: an in-toto statement with the provenance of SLSA, in an envelope of DSSE, signed or not.

https://github.com/in-toto/attestation/blob/main/spec/v1, https://slsa.dev/spec/v1.0/provenance,
https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md and
https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto. Nobody can compute the digest of an
image in a cloud. So the statement has two kinds of subjects: the manifest with the digest of its bytes, which every
tool can compute, and each image with its id in the cloud and its identity, which is a tag of it.

Keys are those of PEM files, used in the ways of Sigstore's tools: Ed25519 as it is, ECDSA on P-256 with SHA-256, and
RSA with SHA-256 and the padding of PKCS #1 v1.5. cosign must be 2.6 or newer: older ones have no option --statement
(https://github.com/sigstore/cosign/blob/main/doc/cosign_attest-blob.md).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import pydantic
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic.alias_generators import to_camel

from imagegen.base.errors import ConfigError, Problem, ToolError
from imagegen.base.files import read_file, write_file
from imagegen.build import process
from imagegen.build.process import Completed, ProgramRunner
from imagegen.record.manifest import ImageManifest, Json
from imagegen.record.reading import ATTEST_AGAIN, InvalidDocument, parse_json, parse_model, stating
from imagegen.record.sbom import base_purl, image_purl, make_sbom
from imagegen.record.store import ATTESTATION, HINT, SBOM, ManifestFile
from imagegen.steps.resource import Strict

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

# securesystemslib imports the SDKs of the clouds that keep keys, so only who signs or verifies imports it.

# NIST SP 800-131A allows no shorter keys, and longer ones take seconds for each signature.
_RSA_BITS: Final = (2048, 8192)
# The library would choose another padding.
_RSA_SCHEME: Final = "rsa-pkcs1v15-sha256"
_LABEL: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,60})-----")
_MAKE_KEY: Final = "openssl genpkey -algorithm ed25519 -out attest.key"
_PRINT_PUBLIC: Final = "give a public key: `openssl pkey -in KEY -pubout` prints that of a private one"
_KINDS: Final = "an Ed25519 key, an ECDSA key on P-256, or an RSA key with 2048 to 8192 bits"


@dataclasses.dataclass(frozen=True)
class VerifyingKey:
    """A public key."""

    _key: Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey

    @property
    def id(self) -> str:
        """The sha256 of the key in DER: a name for people, which proves nothing."""
        return hashlib.sha256(self._key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    @property
    def kind(self) -> str:
        return {"ed25519": "Ed25519", "ecdsa": "ECDSA", "rsa": "RSA"}[self.library_key.keytype]

    @property
    def library_key(self) -> SSlibKey:
        """The key with its way to sign."""
        from securesystemslib.signer import SSlibKey

        scheme = _RSA_SCHEME if isinstance(self._key, RSAPublicKey) else None
        return SSlibKey.from_crypto(self._key, self.id, scheme)

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Whether the signature is one of these bytes by this key."""
        from securesystemslib.exceptions import UnverifiedSignatureError
        from securesystemslib.signer import Signature as LibrarySignature

        try:
            self.library_key.verify_signature(LibrarySignature(self.id, signature.hex()), data)
        except UnverifiedSignatureError:
            return False
        return True


@dataclasses.dataclass(frozen=True)
class SigningKey:
    """A private key. Its text never leaves this object."""

    _key: Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey = dataclasses.field(repr=False)

    @property
    def public(self) -> VerifyingKey:
        return VerifyingKey(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        """A signature of these bytes."""
        from securesystemslib.signer import CryptoSigner

        signed = CryptoSigner(self._key, self.public.library_key).sign(data)
        return bytes.fromhex(signed.signature)


def read_signing_key(data: bytes, shown_as: str, passphrase: bytes | None) -> SigningKey:
    """The private key of a PEM file. Anything else is a ConfigError."""
    label = _label(data, shown_as, f"make a key with `{_MAKE_KEY}`")
    if label.endswith("PUBLIC KEY") or label == "CERTIFICATE":
        raise ConfigError(f"{shown_as} is {_noun(label)}, not a private key", hint=f"make a key with `{_MAKE_KEY}`")
    if "SIGSTORE" in label:
        hint = f"sign with cosign itself: --cosign --cosign-key {shlex.quote(shown_as)}"
        raise ConfigError(f"{shown_as} is a key of cosign, which only cosign can read", hint=hint)
    if label == "OPENSSH PRIVATE KEY":
        hint = f"make a key with `{_MAKE_KEY}`, or convert a copy of this one: `ssh-keygen -p -m PKCS8 -f COPY`"
        raise ConfigError(f"{shown_as} is a key of OpenSSH, not a key in PKCS #8", hint=hint)
    try:
        key = load_pem_private_key(data, passphrase)
    except TypeError:
        if passphrase is None:
            hint = "name the environment variable with its passphrase: --key-passphrase-env NAME"
            raise ConfigError(f"the key {shown_as} is encrypted", hint=hint) from None
        raise ConfigError(f"the key {shown_as} is not encrypted", hint="leave --key-passphrase-env out") from None
    except (ValueError, UnsupportedAlgorithm):
        if passphrase is not None:
            hint = "check the environment variable that --key-passphrase-env names"
            message = f"the key {shown_as} cannot be read: the passphrase is wrong, or the file is damaged"
            raise ConfigError(message, hint=hint) from None
        raise ConfigError(f"{shown_as} is not a valid key in PEM", hint=f"make one with `{_MAKE_KEY}`") from None
    if isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey):
        _check_strength(key.public_key(), shown_as)
        return SigningKey(key)
    raise _unsupported(shown_as, type(key).__name__)


def read_verifying_key(data: bytes, shown_as: str) -> VerifyingKey:
    """The public key of a PEM file. Anything else is a ConfigError."""
    label = _label(data, shown_as, _PRINT_PUBLIC)
    if label.endswith("PRIVATE KEY"):
        hint = f"give the public key: `openssl pkey -in {shlex.quote(shown_as)} -pubout -out attest.pub` writes it"
        raise ConfigError(f"{shown_as} is {_noun(label)}, which must stay where it signs", hint=hint)
    if label == "CERTIFICATE":
        hint = f"give the public key: `openssl x509 -in {shlex.quote(shown_as)} -pubkey -noout` prints it"
        raise ConfigError(f"{shown_as} is a certificate, not a public key", hint=hint)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{shown_as} is not a valid public key in PEM", hint=_PRINT_PUBLIC) from None
    if isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey):
        _check_strength(key, shown_as)
        return VerifyingKey(key)
    raise _unsupported(shown_as, type(key).__name__)


def _label(data: bytes, shown_as: str, hint: str) -> str:
    found = _LABEL.search(data)
    if found is None:
        raise ConfigError(f"{shown_as} is not a key in PEM", hint=hint)
    return found[1].decode("ascii")


def _noun(label: str) -> str:
    return {"CERTIFICATE": "a certificate"}.get(label, "a public key" if "PUBLIC" in label else "a private key")


def _check_strength(key: Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey, shown_as: str) -> None:
    if isinstance(key, EllipticCurvePublicKey) and not isinstance(key.curve, SECP256R1):
        raise _unsupported(shown_as, f"ECDSA on {key.curve.name}")
    if isinstance(key, RSAPublicKey) and not _RSA_BITS[0] <= key.key_size <= _RSA_BITS[1]:
        raise _unsupported(shown_as, f"RSA with {key.key_size} bits")


def _unsupported(shown_as: str, kind: str) -> ConfigError:
    hint = f"use {_KINDS}; `{_MAKE_KEY}` makes one"
    return ConfigError(f"the key {shown_as} is of an unsupported kind: {kind.lstrip('_')}", hint=hint)


MANIFEST_NAME: Final = "manifest.json"
"""The name of the manifest among the subjects, whatever its file is called."""
SBOM_NAME: Final = "sbom.cdx.json"
_CLOUD_ID: Final = "cloudImageId"
_IDENTITY: Final = "imagegenImageId"
_BUILDER: Final = "urn:imagegen:builder"


@dataclasses.dataclass(frozen=True)
class Statement:
    """The statement of in-toto, as JSON."""

    data: Json

    @property
    def sbom_sha256(self) -> str | None:
        """The digest of the SBOM that was made with this statement, wherever somebody else may have put other types."""
        predicate: Any = self.data.get("predicate")
        try:
            listed = predicate["runDetails"]["byproducts"]
            return next((one["digest"]["sha256"] for one in listed if one["name"] == SBOM_NAME), None)
        except (KeyError, TypeError):
            return None


def make_statement(file: ManifestFile, sbom_sha256: str | None) -> Statement:
    """The statement about a manifest. Equal manifests have equal statements.

    A manifest with values that a statement cannot have is an InvalidDocument."""
    with stating(str(file.path), HINT):
        return Statement(
            {
                "_type": "https://in-toto.io/Statement/v1",
                "subject": _unique("subject", _subjects(file)),
                "predicateType": "https://slsa.dev/provenance/v1",
                "predicate": {
                    "buildDefinition": _definition(file.manifest),
                    "runDetails": _run(file.manifest, sbom_sha256),
                },
            }
        )


def _unique(place: str, listed: list[Json]) -> list[pydantic.JsonValue]:
    if len({str(item["name"]) for item in listed}) != len(listed):
        raise ValueError(f"two entries of {place} have the same name")
    return [*listed]


def _stated(values: Mapping[str, pydantic.JsonValue]) -> Json:
    """The keys that have a value."""
    return {key: value for key, value in values.items() if value is not None}


def statement_bytes(statement: Statement) -> bytes:
    """The statement as it is signed."""
    return json.dumps(statement.data, indent=2, sort_keys=True).encode() + b"\n"


def _subjects(file: ManifestFile) -> list[Json]:
    manifest: Json = {"name": MANIFEST_NAME, "digest": {"sha256": file.sha256}, "mediaType": "application/json"}
    identity = file.manifest.image_id
    images: list[Json] = [
        {"name": f"{image.region}/{image.name}", "digest": {_CLOUD_ID: image.id, _IDENTITY: identity}}
        for image in file.images
    ]
    return [manifest, *images]


def _definition(manifest: ImageManifest) -> Json:
    inputs = manifest.inputs
    changes = inputs.stated.get("set")
    plan_sha256 = None if manifest.report is None else str(manifest.report.get("plan_sha256"))
    return {
        "buildType": "urn:imagegen:image:v1",
        "externalParameters": {
            "config": {"name": manifest.name, "file": inputs.config_file, "digest": {"sha256": inputs.config_sha256}},
            "target": manifest.target,
            "labels": {**manifest.labels},
            "set": changes if isinstance(changes, dict) else {},
        },
        "internalParameters": _stated(
            {
                "provider": manifest.provider,
                "imageId": manifest.image_id,
                "planSha256": plan_sha256,
                "versions": {**manifest.versions},
            }
        ),
        "resolvedDependencies": _unique("resolvedDependencies", _dependencies(manifest)),
    }


def _dependencies(manifest: ImageManifest) -> list[Json]:
    inputs = manifest.inputs
    lock: list[Json] = [{"name": "lock", "digest": {"sha256": inputs.lock_sha256}}] if inputs.lock_sha256 else []
    artifacts: list[Json] = [
        {"name": f"artifact/{name}", "uri": artifact.url, "digest": {"sha256": artifact.sha256}}
        for name, artifact in sorted(inputs.artifacts.items())
    ]
    images: list[Json] = [
        {
            "name": f"image/{name}",
            "uri": str(image_purl(name, digest)),
            "digest": {"sha256": digest.removeprefix("sha256:")},
        }
        for name, digest in sorted(inputs.images.items())
    ]
    return [*lock, {"name": "base-image", "uri": str(base_purl(manifest.provider, inputs.base))}, *artifacts, *images]


def _run(manifest: ImageManifest, sbom_sha256: str | None) -> Json:
    tools = manifest.tools
    versions = {"packer": tools.packer, f"packer-plugin-{tools.plugin.name}": tools.plugin.version} if tools else {}
    sbom: Json = {
        "name": SBOM_NAME,
        "digest": {"sha256": sbom_sha256 or ""},
        "mediaType": "application/vnd.cyclonedx+json",
    }
    return {
        "builder": {"id": _BUILDER, "version": {"imagegen": manifest.imagegen_version, **versions}},
        "metadata": _stated(
            {
                "invocationId": manifest.run_id or None,
                # A run that only found the image does not know when it was built.
                "startedOn": manifest.created if tools else None,
                "finishedOn": manifest.finished,
            }
        ),
        "byproducts": [sbom] if sbom_sha256 else [],
    }


LIMIT_BYTES: Final = 16 * 2**20
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


class Signature(Strict):
    """One signature. The `keyid` is only a hint: nobody has signed it."""

    keyid: Annotated[str, pydantic.StringConstraints(max_length=1024)] = ""
    sig: Annotated[str, pydantic.StringConstraints(max_length=8192)]


class Envelope(Strict):
    """An envelope of DSSE."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)

    payload: str
    payload_type: Literal["application/vnd.in-toto+json"]
    signatures: Annotated[list[Signature], pydantic.Field(min_length=1, max_length=16)]


class Bundle(Strict):
    """Sigstore's bundle, as cosign writes it: an envelope, and what proves whose signature it is."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)

    media_type: Annotated[str, pydantic.StringConstraints(pattern=r"^application/vnd\.dev\.sigstore\.bundle")]
    verification_material: Json
    dsse_envelope: Envelope

    @property
    def is_keyless(self) -> bool:
        """Whether a certificate of Sigstore says who signed, instead of a key."""
        return bool({"certificate", "x509CertificateChain"} & self.verification_material.keys())


@dataclasses.dataclass(frozen=True)
class Attestation:
    """A statement as a file has it. Without an envelope it is not signed. It is read after its signature is checked."""

    shown_as: str
    payload: bytes
    envelope: Envelope | None = None
    is_keyless: bool = False

    def read_statement(self) -> Statement:
        """The statement. Anything else in its place is an InvalidDocument."""
        place = f"{self.shown_as}: payload" if self.envelope else self.shown_as
        data = parse_json(self.payload, place, ATTEST_AGAIN)
        if not isinstance(data, dict):
            raise InvalidDocument([Problem(place, 0, "", "is not a statement of in-toto", ATTEST_AGAIN)])
        return Statement(data)

    def is_signed_by(self, key: VerifyingKey) -> bool:
        """Whether one of the signatures is by this key. Whatever the others are, nobody else could have made it."""
        signatures = self.envelope.signatures if self.envelope else []
        signed = _signed_bytes(self.payload)
        return any(key.has_signed(signed, data) for one in signatures if (data := _decode(one.sig)) is not None)

    @property
    def key_ids(self) -> list[str]:
        """The keys that the signatures name."""
        return [one.keyid for one in self.envelope.signatures if one.keyid] if self.envelope else []


def sign(statement: Statement, key: SigningKey) -> bytes:
    """An envelope with the statement and one signature."""
    payload = statement_bytes(statement)
    signature = Signature(keyid=key.public.id, sig=base64.b64encode(key.sign(_signed_bytes(payload))).decode())
    envelope = Envelope(payload=base64.b64encode(payload).decode(), payload_type=PAYLOAD_TYPE, signatures=[signature])
    return json.dumps(envelope.model_dump(mode="json", by_alias=True), indent=2, sort_keys=True).encode() + b"\n"


def read_attestation(data: bytes, shown_as: str) -> Attestation:
    """An attestation: a bundle, an envelope, or else a statement. What is not JSON is an InvalidDocument."""
    value = parse_json(data, shown_as, ATTEST_AGAIN)
    keys = value.keys() if isinstance(value, dict) else set()
    if "dsseEnvelope" in keys:
        bundle = parse_model(value, Bundle, shown_as, ATTEST_AGAIN)
        return _opened(bundle.dsse_envelope, shown_as, is_keyless=bundle.is_keyless)
    if "payload" in keys:
        return _opened(parse_model(value, Envelope, shown_as, ATTEST_AGAIN), shown_as, is_keyless=False)
    return Attestation(shown_as, data)


def _opened(envelope: Envelope, shown_as: str, *, is_keyless: bool) -> Attestation:
    payload = _decode(envelope.payload)
    if payload is None:
        raise InvalidDocument([Problem(shown_as, 0, "payload", "is not valid base64", ATTEST_AGAIN)])
    return Attestation(shown_as, payload, envelope, is_keyless)


def _signed_bytes(payload: bytes) -> bytes:
    """What a signature is made of: type and payload, each after its length."""
    from securesystemslib import dsse

    return dsse.Envelope(payload, PAYLOAD_TYPE, {}).pae()


def _decode(text: str) -> bytes | None:
    """The bytes of base64, in either of its alphabets. None if the text is not valid."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None


# cosign's own limit is three minutes; somebody may have to sign in with a browser.
_TIMEOUT_S: Final = 300.0
# No service of Sigstore hears of the statement, and no network is needed unless the key is in one.
_PRIVATE: Final = ("--use-signing-config=false", "--tlog-upload=false")
_INSTALL: Final = "install cosign 2.6 or newer (https://docs.sigstore.dev/cosign/system_config/installation/)"
_SHOWN_LINES: Final = 10


def sign_with_cosign(
    statement: Statement,
    key: str | None,
    *,
    public_log: bool,
    environ: Mapping[str, str],
    run: ProgramRunner = process.run,
) -> bytes:
    """Sigstore's bundle with the signed statement. `key` is what cosign calls so: a file, or the address of a KMS.

    Without a key cosign asks for an identity, and Sigstore's public log gets it. With a key nothing is published,
    unless `public_log`.
    """
    program = shutil.which("cosign", path=environ.get("PATH", ""))
    if program is None:
        raise ToolError("cosign is not on the PATH", hint=f"{_INSTALL}, or sign with --key FILE")
    with tempfile.TemporaryDirectory(prefix="imagegen-attest-") as name:
        unsigned, bundle = Path(name, "statement.json"), Path(name, "bundle.json")
        unsigned.write_bytes(statement_bytes(statement))
        argv = [
            *(program, "attest-blob", "--statement", str(unsigned), "--bundle", str(bundle)),
            *("--new-bundle-format=true", "--yes"),
            *(("--key", key) if key else ()),
            *(() if public_log else _PRIVATE),
        ]
        try:
            completed = run(argv, environ=environ, timeout=_TIMEOUT_S)
        except TimeoutError as overdue:
            raise ToolError(str(overdue), hint="run cosign yourself to see what it waits for") from overdue
        if completed.returncode != 0 or not bundle.is_file():
            raise _failure(completed)
        return _checked(read_file(bundle, limit=LIMIT_BYTES, error=ToolError), statement)


def _checked(bundle: bytes, statement: Statement) -> bytes:
    """The bundle, if cosign has signed exactly this statement."""
    try:
        attestation = read_attestation(bundle, "cosign's bundle")
    except InvalidDocument as invalid:
        raise ToolError("cosign's bundle cannot be read", problems=invalid.problems, hint=_INSTALL) from None
    if attestation.envelope is None or attestation.payload != statement_bytes(statement):
        raise ToolError("cosign did not sign the statement that it was given", hint=_INSTALL)
    return bundle


def _failure(completed: Completed) -> ToolError:
    lines = [line for line in completed.stderr.splitlines() if line.strip()]
    hint = "read cosign's output above"
    if any("unknown flag" in line for line in lines):
        hint = _INSTALL
    elif any("password" in line.lower() or "decrypt" in line.lower() for line in lines):
        hint = "set COSIGN_PASSWORD to the passphrase of the key"
    message = f"cosign ended with exit code {completed.returncode} and signed nothing"
    return ToolError(message, details=lines[-_SHOWN_LINES:], hint=hint)


@dataclasses.dataclass(frozen=True)
class DocumentFiles:
    """Where the documents are."""

    attestation: Path
    sbom: Path

    @classmethod
    def of(cls, manifest: Path, folder: Path | None) -> DocumentFiles:
        """Beside the manifest, or in another folder."""
        start = (folder or manifest.parent) / manifest.stem
        return cls(Path(f"{start}{ATTESTATION}"), Path(f"{start}{SBOM}"))


Sign = Callable[[Statement], bytes]
"""What puts a statement into an envelope with its signature."""


@dataclasses.dataclass(frozen=True)
class Documents:
    """The bytes of both documents."""

    attestation: bytes
    sbom: bytes

    def write(self, files: DocumentFiles) -> None:
        """Write both, the attestation last: it has the digest of the SBOM."""
        write_file(files.sbom, self.sbom)
        write_file(files.attestation, self.attestation)


def make_documents(file: ManifestFile, sign: Sign | None) -> Documents:
    """The documents about a manifest. Without `sign` the attestation is the statement alone."""
    sbom = make_sbom(file)
    statement = make_statement(file, hashlib.sha256(sbom).hexdigest())
    return Documents(sign(statement) if sign else statement_bytes(statement), sbom)
