"""Signs a statement with an installed cosign. Starts that program, and touches a folder of its own.

cosign 2.6 or newer: older ones have no `attest-blob --statement`, which signs the statement as it is.
https://github.com/sigstore/cosign/blob/main/doc/cosign_attest-blob.md
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from imagegen.base.errors import ToolError
from imagegen.base.files import read_file
from imagegen.build import process
from imagegen.build.process import Completed, ProgramRunner
from imagegen.record.envelope import LIMIT_BYTES, read_attestation
from imagegen.record.reading import InvalidDocument
from imagegen.record.statement import Statement, statement_bytes

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
