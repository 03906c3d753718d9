"""Takes the operator's signed copies of the scripts: a folder -> their bytes and signers. Reads only that folder."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.model import Verdict
from imagegen.base.errors import VerificationError
from imagegen.base.files import read_file
from imagegen.base.lines import counted
from imagegen.trust.block import is_script, is_signed, without_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from imagegen.authenticode.model import Signature
    from imagegen.trust.listing import ListedScript

    Judge = Callable[[str, bytes], "Judged"]

# A signature block has some kilobytes.
_LARGEST: Final = 1024 * 1024
_MOST: Final = 2000
_SHOWN: Final = 20


@dataclasses.dataclass(frozen=True)
class Judged:
    """What was found of a script's signature. `fault` is empty if the script may be used, and follows its name."""

    fault: str
    signature: Signature | None = None


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
    signatures: Mapping[str, Signature]
    faults: Mapping[str, CopyFault]

    def end(self, path: str) -> datetime.datetime | None:
        """When the signature of a script ends with its certificates. None: it has a timestamp, or there is none."""
        signature = self.signatures.get(path)
        if signature is None or (signature.timestamp and signature.timestamp.verdict is Verdict.VALID):
            return None
        return min(certificate.not_after for certificate in signature.chain)


def find_copies(scripts: Sequence[ListedScript], folder: Path | None, judge: Judge) -> SignedCopies:
    """Find a signed copy of each script, whatever its name in the folder. A script that has a signature of its own
    needs no copy."""
    by_text: dict[str, tuple[str, bytes]] = {}
    by_path: dict[str, bytes] = {}
    for path, copy in _read(folder):
        by_path[path] = copy
        if is_signed(copy):
            by_text[_digest(copy)] = (str(folder / path) if folder else path, copy)
    data, signatures, faults = {}, {}, {}
    for script in scripts:
        own = (script.path, script.data) if is_signed(script.data) else None
        name, copy = by_text.get(_digest(script.data)) or own or ("", b"")
        if not copy:
            faults[script.path] = _absence(script.path, by_path.get(script.path), folder)
            continue
        judged = judge(name, copy)
        if judged.signature is None or judged.fault:
            faults[script.path] = _of_copy(name, judged.fault)
        else:
            data[script.path], signatures[script.path] = copy, judged.signature
    return SignedCopies(data, signatures, faults)


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
    return hashlib.sha256(without_signature(data)).hexdigest()


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
