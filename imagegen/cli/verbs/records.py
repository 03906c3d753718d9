"""`imagegen manifest`, `attest` and `verify`: what was built, and the proof of it."""

import dataclasses
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.files import read_file
from imagegen.base.lines import counted, one_line
from imagegen.cli import options
from imagegen.cli.arguments import choose_manifest, find_manifest_file, find_store, is_image_id
from imagegen.cli.messages import messages
from imagegen.cli.output import manifest_line, print_as, print_manifest
from imagegen.record.attest import (
    LIMIT_BYTES,
    DocumentFiles,
    Documents,
    Sign,
    SigningKey,
    VerifyingKey,
    make_documents,
    read_attestation,
    read_signing_key,
    read_verifying_key,
    sign,
    sign_with_cosign,
)
from imagegen.record.manifest import ImageManifest
from imagegen.record.reading import InvalidDocument, read_bytes
from imagegen.record.store import LocalStore, ManifestFile, find_contradictions, read_manifest
from imagegen.record.verify import Check, RefusedLabel, VerifyRequest
from imagegen.record.verify import verify as verify_all


@click.group()
def manifest() -> None:
    """Read the manifests of built images."""


@manifest.command("list")
@options.STORE_FOLDER
@options.OUT
@options.FORMAT
def manifest_list(folder: Path | None, out: Path, form: str) -> None:
    """List the manifests, newest first.

    \b
    With FOLDER those of another folder, for example of a rehearsal:
      imagegen manifest list out/rehearsal/windows-2022-containerd-prod-x1y2z3
    """
    store = find_store(folder, out)
    listing = LocalStore(store).list()
    if not listing.records and not listing.bad:
        click.echo(one_line(f"there are no manifests in {store}"), err=True)
        rehearsals = store.parent.glob("rehearsal/*/manifests")
        if newest := max(rehearsals, key=lambda path: path.stat().st_mtime, default=None):
            line = f"hint: the newest rehearsal's: imagegen manifest list {shlex.quote(str(newest.parent))}"
            click.echo(one_line(line), err=True)
    print_as(form, [item.model_dump(mode="json") for item in listing.records], map(manifest_line, listing.records))
    listing.reject_bad()


def _read(file: Path) -> ImageManifest:
    try:
        return read_manifest(file).manifest
    except InvalidDocument as invalid:
        raise ConfigError(f"{file} cannot be shown", problems=invalid.problems) from None


@manifest.command("show")
@click.argument("image_id", metavar="MANIFEST")
@options.STORE_FOLDER
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, folder: Path | None, out: Path, form: str) -> None:
    """Show a manifest: MANIFEST is the start of an image's id in OUT or in FOLDER, or the file of a manifest."""
    if Path(image_id).exists() or not is_image_id(image_id):
        print_manifest(_read(find_manifest_file(image_id, folder)), form)
        return
    store = find_store(folder, out)
    listing = LocalStore(store).list()
    print_manifest(choose_manifest(image_id, listing, store), form)
    listing.reject_bad()


LIMIT_KEY_BYTES: Final = 64 * 2**10
_UNSIGNED: Final = "warning: not signed, so anybody could have written it: sign it with --key FILE or --cosign"


@click.command()
@options.MANIFEST
@options.STORE_FOLDER
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the documents, if not the manifest's.",
)
@click.option("--key", type=click.Path(path_type=Path), help="Sign with this private key: a file in PEM.")
@click.option("--key-passphrase-env", metavar="NAME", help="The environment variable with the passphrase of --key.")
@click.option("--cosign", is_flag=True, help="Sign with cosign, which must be on the PATH.")
@click.option(
    "--cosign-key", metavar="KEY", help="The key for cosign: a file, or an address such as hashivault://NAME."
)
@click.option("--public-log", is_flag=True, help="Let cosign publish the signature in Sigstore's public log.")
@options.FORMAT
def attest(
    manifest: str,
    folder: Path | None,
    out: Path | None,
    key: Path | None,
    key_passphrase_env: str | None,
    cosign: bool,
    cosign_key: str | None,
    public_log: bool,
    form: str,
) -> None:
    """Write proof of what was built: a signed attestation and an SBOM.

    MANIFEST is the file of a manifest, or the start of an image's id in the folder out or in FOLDER. Beside the
    manifest, imagegen writes an in-toto statement with SLSA provenance (.provenance.json) and a list of everything in
    the image in the form of CycloneDX (.cdx.json). `imagegen verify` checks both.

    \b
    With a key of your own:
      openssl genpkey -algorithm ed25519 -out attest.key
      openssl pkey -in attest.key -pubout -out attest.pub
      imagegen attest 43ed4e1a --key attest.key
      imagegen verify 43ed4e1a --key attest.pub

    \b
    With cosign and a key in a KMS; COSIGN_PASSWORD has the passphrase if the key is a file:
      imagegen attest 43ed4e1a --cosign --cosign-key hashivault://images

    \b
    With cosign and your identity, which Sigstore then publishes:
      imagegen attest 43ed4e1a --cosign --public-log
    """
    _check_options(key, key_passphrase_env, cosign=cosign, cosign_key=cosign_key, public_log=public_log)
    signer = _read_signing_key(key, key_passphrase_env) if key else None
    path = find_manifest_file(manifest, folder)
    files = DocumentFiles.of(path, out)
    documents = _make(path, _signing(signer, cosign=cosign, cosign_key=cosign_key, public_log=public_log))
    if signer is None and not cosign:
        _keep_signature(files.attestation)
    documents.write(files)
    signed_by = f"the {signer.public.kind} key {signer.public.id}" if signer else "cosign" if cosign else None
    if signed_by is None:
        messages().show(one_line(_UNSIGNED))
    print_as(
        form,
        {"attestation": str(files.attestation), "sbom": str(files.sbom), "signed_by": signed_by},
        [f"{files.attestation}: {f'signed by {signed_by}' if signed_by else 'not signed'}", f"{files.sbom}"],
    )


def _check_options(
    key: Path | None, passphrase_env: str | None, *, cosign: bool, cosign_key: str | None, public_log: bool
) -> None:
    if key and cosign:
        raise click.UsageError("--key and --cosign cannot be used together: cosign's own key is --cosign-key")
    if passphrase_env and not key:
        raise click.UsageError("--key-passphrase-env can only be used together with --key")
    if (cosign_key or public_log) and not cosign:
        raise click.UsageError("--cosign-key and --public-log can only be used together with --cosign")
    if cosign and not (cosign_key or public_log):
        message = "--cosign without a key signs with your identity, which Sigstore publishes for ever"
        raise ConfigError(message, hint="add --cosign-key KEY, or --public-log if your identity may be published")


def _read_signing_key(path: Path, passphrase_env: str | None) -> SigningKey:
    try:
        data = read_file(path, limit=LIMIT_KEY_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"the key {path} does not exist", hint="give the path of a private key with --key") from None
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        messages().show(
            one_line(f"warning: other users may read the key {path}: run `chmod 600 {shlex.quote(str(path))}`")
        )
    passphrase = None if passphrase_env is None else os.environ.get(passphrase_env)
    if passphrase_env is not None and not passphrase:
        hint = "set it to the passphrase of the key"
        raise ConfigError(f"the environment variable {passphrase_env} is not set", hint=hint)
    return read_signing_key(data, str(path), passphrase.encode() if passphrase else None)


def _signing(key: SigningKey | None, *, cosign: bool, cosign_key: str | None, public_log: bool) -> Sign | None:
    if key:
        return lambda statement: sign(statement, key)
    if cosign:
        return lambda statement: sign_with_cosign(statement, cosign_key, public_log=public_log, environ=os.environ)
    return None


def _keep_signature(file: Path) -> None:
    """Refuse to replace a signed attestation by an unsigned one."""
    try:
        found = read_attestation(read_bytes(file, limit=LIMIT_BYTES, hint=""), str(file))
    except InvalidDocument:
        # There is none, or it proves nothing.
        return
    if found.envelope:
        raise RefusedError(
            f"{file} is signed, and would be replaced by an unsigned one",
            hint="give --key FILE or --cosign to sign again, or --out FOLDER for unsigned documents",
        )


def _make(path: Path, signing: Sign | None) -> Documents:
    try:
        file = read_manifest(path)
        _reject_contradictions(file)
        return make_documents(file, signing)
    except InvalidDocument as invalid:
        raise ConfigError(f"{path} cannot be attested", problems=invalid.problems) from None


def _reject_contradictions(file: ManifestFile) -> None:
    if problems := list(find_contradictions(file)):
        raise InvalidDocument(problems)


_REHEARSED: Final = RefusedLabel(
    options.REHEARSAL_LABEL,
    "true",
    "is the manifest of a rehearsal: no cloud has this image, and stand-ins took the place of its downloads",
    "add --rehearsal to verify a rehearsal",
)


@click.command()
@options.MANIFEST
@options.STORE_FOLDER
@click.option("--key", type=click.Path(path_type=Path), help="The attestation must be signed by this public key (PEM).")
@click.option(
    "--documents", type=click.Path(path_type=Path), help="The folder of the documents, if not the manifest's."
)
@click.option("--lock", "lock_file", type=click.Path(path_type=Path), help="The lock that the image was built with.")
@click.option("--node", type=click.Path(path_type=Path), help="The output of start.ps1 -Check on a node.")
@click.option("--rehearsal", is_flag=True, help="Accept the manifest of a rehearsal.")
@options.FORMAT
def verify(
    manifest: str,
    folder: Path | None,
    key: Path | None,
    documents: Path | None,
    lock_file: Path | None,
    node: Path | None,
    rehearsal: bool,
    form: str,
) -> None:
    """Check that a manifest, the proof about it and a node belong together. Needs no network and no account.

    MANIFEST is the file of a manifest, or the start of an image's id in the folder out or in FOLDER.

    \b
    The manifest and the documents of `imagegen attest` beside it:
      imagegen verify 43ed4e1a --key attest.pub

    \b
    Also that it was built with this lock, and that a node is still as it was built:
      imagegen verify manifest.json --key attest.pub --lock image.lock.json --node check.txt

    Exit codes: 0 if all is as it must be, 4 if not, 2 if the command line is invalid.
    """
    key_found = _read_public_key(key) if key else None
    path = find_manifest_file(manifest, folder)
    _check_paths(lock_file, node, documents)
    request = VerifyRequest(
        path,
        DocumentFiles.of(path, documents),
        needs_documents=documents is not None,
        key=key_found,
        lock=lock_file,
        node=node,
        refused=None if rehearsal else _REHEARSED,
    )
    checks = list(verify_all(request))
    print_as(form, _as_json(path, checks), _check_lines(checks))
    _reject_failed(path, checks)


def _check_paths(lock: Path | None, node: Path | None, documents: Path | None) -> None:
    if lock and not lock.exists():
        raise ConfigError(f"{lock} does not exist", hint="give the lock as it was at the build, with --lock")
    if node and not node.exists():
        raise ConfigError(f"{node} does not exist", hint="give the saved output of start.ps1 -Check, with --node")
    if documents and not documents.is_dir():
        problem = "is not a folder" if documents.exists() else "does not exist"
        raise ConfigError(f"{documents} {problem}", hint="give the folder with the documents, with --documents")


def _read_public_key(path: Path) -> VerifyingKey:
    try:
        data = read_file(path, limit=LIMIT_KEY_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"the key {path} does not exist", hint="give the path of a public key with --key") from None
    return read_verifying_key(data, str(path))


def _as_json(path: Path, checks: list[Check]) -> dict[str, object]:
    return {
        "manifest": str(path),
        "ok": not any(check.problems for check in checks),
        "checks": [dataclasses.asdict(check) for check in checks],
    }


def _check_lines(checks: list[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.name:<{width}}  {check.status:<7}  {check.summary}"


def _reject_failed(path: Path, checks: list[Check]) -> None:
    """Fail with every problem, if there is one."""
    problems = [problem for check in checks for problem in check.problems]
    failed = [check.name for check in checks if check.problems]
    if problems:
        raise VerificationError(
            f"{path}: {counted(len(failed), 'check')} failed: {', '.join(failed)}", problems=problems
        )
