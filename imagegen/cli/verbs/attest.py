"""`imagegen attest`: writes proof of what was built."""

import os
import shlex
import stat
from pathlib import Path
from typing import Final

import click

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.files import read_file
from imagegen.base.lines import one_line
from imagegen.cli import options
from imagegen.cli.messages import messages
from imagegen.cli.output import print_as
from imagegen.cli.stored import find_manifest_file
from imagegen.record.attest import (
    LIMIT_BYTES,
    DocumentFiles,
    Documents,
    Sign,
    SigningKey,
    make_documents,
    read_attestation,
    read_signing_key,
    sign,
    sign_with_cosign,
)
from imagegen.record.reading import InvalidDocument, read_bytes
from imagegen.record.store import ManifestFile, find_contradictions, read_manifest

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
    signer = _read_key(key, key_passphrase_env) if key else None
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


def _read_key(path: Path, passphrase_env: str | None) -> SigningKey:
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
