"""A config whose machines run only signed scripts, and somebody who signs them with throw-away certificates."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.authenticode.trust import load_trust
from imagegen.inspect.archive import open_artifacts
from imagegen.plan import loading
from imagegen.plan.context import artifact_requests
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.signing.stand_in_signer import StandInSigner
from imagegen.trust.block import is_script
from imagegen.trust.judge import check_signatures
from imagegen.trust.scripts import list_own_scripts
from imagegen.trust.shipped import read_shipped
from imagegen.trust.sources import CrlUse
from tests.authenticode.pki import CODE, STAMP, Identity, issue
from tests.authenticode.signing import Options, sign_pe, sign_script
from tests.conftest import REPOSITORY, load_today, make_test_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.fetch.lock import Lock
    from imagegen.rehearsal.artifacts import Sign
    from imagegen.trust.scripts import ListedScript

SIGNED = "signed"
_SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"


@dataclasses.dataclass(frozen=True)
class Signers:
    """Certificates that are valid on the day of the test, because commands judge them by the clock."""

    root: Identity
    signer: Identity
    stranger: Identity
    """Below another root."""
    clock: Identity
    """An authority for timestamps, below a root of its own."""

    @property
    def stamped(self) -> Options:
        """To sign with a timestamp of now."""
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        return Options(timestamps=[self.clock], stamped=now - datetime.timedelta(minutes=5))


@functools.cache
def signers() -> Signers:
    now = datetime.datetime.now(datetime.UTC)
    valid = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=30))
    usage = ["key_cert_sign", "crl_sign"]
    root, other, clock_root = (
        issue(name, ca=True, key_usages=usage, valid=valid)
        for name in ("CN=Example Root", "CN=Other Root", "CN=Example Clock Root")
    )
    ca = issue("CN=Example Code CA", root, ca=True, key_usages=usage, valid=valid)
    signer = issue("O=Example Inc, CN=Example Inc", ca, usages=[CODE], key_usages=["digital_signature"], valid=valid)
    stranger = issue("CN=Stranger", other, usages=[CODE], key_usages=["digital_signature"], valid=valid)
    clock = issue("CN=Clock", clock_root, usages=[STAMP], key_usages=["digital_signature"], valid=valid)
    return Signers(root, signer, stranger, clock)


class StampedSigner(StandInSigner):
    """Signs programs as "Example Inc", whom the config must allow, with a timestamp below another root."""

    @property
    def roots(self) -> bytes:
        return super().roots + signers().root.pem + signers().clock.chain[-1].pem

    def sign(self, artifact: str, path: str, data: bytes) -> bytes:
        if not data.startswith(b"MZ"):
            return super().sign(artifact, path, data)
        return sign_pe(data, signers().signer, signers().stamped)


def write_root(folder: Path) -> None:
    """The root of the signers, beside a config."""
    (folder / "root.pem").write_bytes(signers().root.pem)


def write_config(folder: Path, more: str = "", *, sets: tuple[str, ...] = ()) -> loading.Loaded:
    """The shipped config with signed scripts, and these lines. The root is beside it."""
    write_root(folder)
    text = _SHIPPED.read_text(encoding="utf-8").replace("windows:\n", "windows:\n  trusted_roots: [root.pem]\n", 1)
    file = folder / "config.yaml"
    file.write_text(f"{text}\nartifacts:\n  signatures:\n    own_scripts: {{from: {SIGNED}}}\n{more}\n")
    return load_today(file, *sets)


def listed(config: loading.Loaded, target: str) -> tuple[ListedScript, ...]:
    """The scripts of an image of this config."""
    prepared = pipeline.prepare_target(config, target)
    shipped = read_shipped(config.contents.packer, prepared.spec.provider)
    return list_own_scripts(prepared.spec, config.steps, shipped.to_sign(prepared.cloud.boot_files), samples={})


def sign_all(
    config: loading.Loaded,
    target: str,
    change: Callable[[str, bytes], bytes | None] = lambda _, data: data,
    *,
    folder: str = SIGNED,
) -> None:
    """Sign all scripts into the folder of the config. `change` gives the bytes of a signed copy; None leaves it out."""
    for script in listed(config, target):
        data = change(script.path, sign(script))
        if data is not None:
            file = config.file.parent / folder / script.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def sign(script: ListedScript) -> bytes:
    return _signed(script.data, script.path[script.path.rindex(".") :])


@functools.cache
def _signed(data: bytes, extension: str) -> bytes:
    return sign_script(data, signers().signer, extension=extension)


def sign_scripts_by(signer: Identity) -> Sign:
    """Signs the scripts of stand-ins, and nothing else. The same script always has the same signature."""

    @functools.cache
    def sign_file(_artifact: str, path: str, data: bytes) -> bytes:
        if not is_script(path) or data.startswith(b"PK"):
            return data
        return sign_script(data, signer, extension=path[path.rindex(".") :])

    return sign_file


def make_signed_lock(config: loading.Loaded, target: str, sign_file: Sign) -> Lock:
    """A lock with the signatures that stand-ins have. Who signed is not compared with the config, and what nobody has
    signed counts as no program."""
    prepared = pipeline.prepare_target(config, target)
    lock, requests = make_test_lock(config, target, sign=sign_file), artifact_requests(prepared.steps)
    made = make_artifacts(prepared.steps, sign_file)
    known = signers()
    trust = load_trust(
        now=datetime.datetime.now(datetime.UTC),
        roots=[known.root.pem, known.stranger.chain[-1].pem],
        public_roots=False,
    )
    entries = dict(lock.artifacts)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "artifact"
        for name, request in prepared.signatures.items():
            file.write_bytes(made[requests[name].url])
            opened = open_artifacts([requests[name]], file)[name]
            anybody = dataclasses.replace(request, signers=())
            signed = check_signatures(anybody, opened, trust, Path(folder), CrlUse()).signed
            others = sorted(request.used.select(opened.members).keys() - signed.keys())
            entries[name] = entries[name].model_copy(update={"signed": signed, "not_programs": others})
    return lock.model_copy(update={"artifacts": entries})
