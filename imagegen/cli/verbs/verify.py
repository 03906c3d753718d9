"""`imagegen verify`: checks a manifest, the proof about it, and nodes of its image."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from imagegen.base.errors import ConfigError, VerificationError
from imagegen.base.files import read_file
from imagegen.base.lines import counted
from imagegen.cli import options
from imagegen.cli.output import print_as
from imagegen.cli.stored import find_manifest_file
from imagegen.record.attest import DocumentFiles, VerifyingKey, read_verifying_key
from imagegen.record.verify import Check, RefusedLabel, VerifyRequest
from imagegen.record.verify import verify as verify_all

LIMIT_KEY_BYTES: Final = 64 * 2**10
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
    key_found = _read_key(key) if key else None
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
    print_as(form, _as_json(path, checks), _lines(checks))
    _reject_failed(path, checks)


def _check_paths(lock: Path | None, node: Path | None, documents: Path | None) -> None:
    if lock and not lock.exists():
        raise ConfigError(f"{lock} does not exist", hint="give the lock as it was at the build, with --lock")
    if node and not node.exists():
        raise ConfigError(f"{node} does not exist", hint="give the saved output of start.ps1 -Check, with --node")
    if documents and not documents.is_dir():
        problem = "is not a folder" if documents.exists() else "does not exist"
        raise ConfigError(f"{documents} {problem}", hint="give the folder with the documents, with --documents")


def _read_key(path: Path) -> VerifyingKey:
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


def _lines(checks: list[Check]) -> Iterator[str]:
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
