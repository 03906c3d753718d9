"""How long checking signatures takes: the programs of a large image, each signed and timestamped."""

from __future__ import annotations

import io
import time

from imagegen.authenticode.model import Verdict
from imagegen.authenticode.trust import load_trust
from imagegen.authenticode.verify import verify
from tests.authenticode.pki import LATER, make_authority, make_ca, make_signer, pki, rsa_key
from tests.authenticode.signing import Options, sign_pe
from tests.authenticode.support import fixture

PROGRAMS = 200
_SIZE = 100 * 1024
# Programs come from several makers, so that not every chain is known already.
_SIGNERS = 20
PROMISED_S = 10


def signature_figures() -> list[str]:
    """The seconds of CPU for all programs, with reading Microsoft's list of roots, and the promised ones."""
    programs = _signed_programs()
    began = time.process_time()
    trust = load_trust(now=LATER, roots=[pki().root.pem, pki().clock_root.pem], public_roots=True)
    loaded = time.process_time()
    found = [verify(io.BytesIO(program), f"{number}.exe", trust) for number, program in enumerate(programs)]
    valid = sum(one.verdict is Verdict.VALID for one in found)
    seconds = time.process_time() - began
    assert valid == PROGRAMS
    return [
        f"signatures of {PROGRAMS} programs of {len(programs[0]) // 1024} KiB: {seconds:.2f} s of CPU, "
        f"{loaded - began:.2f} s of it for the list of roots (promised: below {PROMISED_S} s)"
    ]


def _signed_programs() -> list[bytes]:
    base = fixture("program.exe") + bytes(_SIZE)
    signed = []
    for number in range(_SIGNERS):
        ca = make_ca(pki().root, f"O=Example, CN=Example CA {number}", key=rsa_key(1))
        signer = make_signer(ca, f"O=Example {number}, CN=Example {number}", key=rsa_key(2))
        options = Options(timestamps=[make_authority(pki().clock_root, key=rsa_key(3))])
        for copy in range(PROGRAMS // _SIGNERS):
            signed.append(sign_pe(base + f"{number} {copy}".encode(), signer, options))
    return signed
