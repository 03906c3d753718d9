"""A manifest with its documents in a folder, keys, and the result of -Check on a node of its image."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from imagegen.fetch.lock import Lock, LockedArtifact, LockedBase, lock_bytes
from imagegen.record.attest import (
    DocumentFiles,
    SigningKey,
    VerifyingKey,
    make_documents,
    read_signing_key,
    read_verifying_key,
    sign,
)
from imagegen.record.store import read_manifest
from imagegen.record.verify import Check, VerifyRequest, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    Change = Callable[[Any], object]

MANIFEST = Path(__file__).parent / "attest" / "aws" / "manifest.json"
OTHER = "0f" * 32
"""A digest of nothing."""
KINDS = ("ed25519", "p256", "rsa")
_NEW: dict[str, Callable[[], PrivateKeyTypes]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "other": ed25519.Ed25519PrivateKey.generate,
    "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
    "rsa-1024": lambda: rsa.generate_private_key(65537, 1024),  # noqa: S505 - too weak on purpose
}


@functools.cache
def private_pem(kind: str, passphrase: str = "") -> bytes:
    """A new key, the same one for the whole run."""
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    return _key(kind).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@functools.cache
def public_pem(kind: str) -> bytes:
    return _key(kind).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@functools.cache
def _key(kind: str) -> PrivateKeyTypes:
    return _NEW[kind]()


@functools.cache
def signing_key(kind: str) -> SigningKey:
    return read_signing_key(private_pem(kind), kind, None)


@dataclasses.dataclass(frozen=True)
class Proof:
    """A manifest with its documents, lock and result of -Check in a folder."""

    folder: Path
    name: str = "manifest.json"

    @property
    def manifest(self) -> Path:
        return self.folder / self.name

    @property
    def files(self) -> DocumentFiles:
        return DocumentFiles.of(self.manifest, None)

    @property
    def lock(self) -> Path:
        return self.folder / "image.lock.json"

    @property
    def node(self) -> Path:
        return self.folder / "check.txt"

    def attest(self, kind: str | None) -> None:
        """Write the documents, signed by this key or not signed."""
        key = signing_key(kind) if kind else None
        made = make_documents(read_manifest(self.manifest), (lambda one: sign(one, key)) if key else None)
        made.write(self.files)

    def read(self, path: Path) -> Any:  # noqa: ANN401 - JSON
        return json.loads(path.read_bytes())

    def change(self, path: Path, change: Callable[[Any], object]) -> None:
        """Change a JSON document; a change that changes nothing is a defect of the test."""
        before = path.read_bytes()
        data = json.loads(before)
        change(data)
        path.write_text(json.dumps(data, indent=2, sort_keys=True))
        assert json.loads(before) != data


def make_proof(folder: Path, kind: str | None = "ed25519") -> Proof:
    """All files about one image, which belong together."""
    proof = Proof(folder)
    manifest = json.loads(MANIFEST.read_bytes())
    proof.lock.write_bytes(lock_bytes(lock_of(manifest)))
    manifest["inputs"]["lock_sha256"] = hashlib.sha256(proof.lock.read_bytes()).hexdigest()
    proof.manifest.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    proof.node.write_text(f"phase-1 started\r\nimagegen-check: {json.dumps(check_of(manifest))}\r\n")
    proof.attest(kind)
    return proof


def lock_of(manifest: dict[str, Any]) -> Lock:
    """A lock with the inputs of a manifest, and others."""
    inputs = manifest["inputs"]
    image = {"os_version": "", "windows_build": 20348, "config": f"sha256:{'c' * 64}", "layers": f"sha256:{'d' * 64}"}
    return Lock.model_validate(
        {
            "artifacts": {
                name: LockedArtifact(url=f"{one['url']}?token=x", sha256=one["sha256"], size=one["size"])
                for name, one in {**inputs["artifacts"], "other": inputs["artifacts"]["nssm"]}.items()
            },
            "base_images": {manifest["target"]: LockedBase(**inputs["base"])},
            "images": {
                name: {"digest": digest, "manifest": digest, "size": 1, **image}
                for name, digest in inputs["images"].items()
            },
        }
    )


def check_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """What -Check says of a node that has not drifted."""
    report = manifest["report"]
    resources = [{"id": one["id"], "status": "ok", "reasons": []} for one in report["resources"]]
    return {
        "check_version": 1,
        "plan_sha256": report["plan_sha256"],
        "name": manifest["name"],
        "target": manifest["provider"],
        "phase": "all",
        "node": "ip-10-0-0-7",
        "booted": True,
        "machine": report["machine"],
        "count": {"ok": len(resources), "drifted": 0, "skipped": 0, "failed": 0},
        "resources": resources,
    }


def public(kind: str) -> VerifyingKey:
    return read_verifying_key(public_pem(kind), f"{kind}.pub")


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fill(path: Path, content: bytes | str | int) -> None:
    """Write a file. A number is the size of a file of zeros, which takes no room on the disk."""
    if isinstance(content, int):
        path.write_bytes(b"")
        os.truncate(path, content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def check(
    proof: Proof, kind: str | None = "ed25519", *, lock: Path | None = None, node: Path | None = None
) -> dict[str, Check]:
    """All checks by their names, with this key."""
    request = VerifyRequest(proof.manifest, proof.files, public(kind) if kind else None, lock, node)
    return {one.name: one for one in verify(request)}


def said(checks: dict[str, Check], folder: Path) -> dict[str, list[str]]:
    """The problems of each check that failed, without the folder and the hints."""
    return {
        name: [str(problem).split("\n")[0].replace(f"{folder}/", "") for problem in one.problems]
        for name, one in checks.items()
        if one.status == "failed"
    }
