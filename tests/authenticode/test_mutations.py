"""Thousands of random changes of one byte: none leaves a file valid, unless no signature protects the byte."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.model import Verdict
from tests.authenticode.coverage import free_of_package, free_of_program, free_of_script
from tests.authenticode.support import changed, fixture, fixture_trust, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Set

# Each run is short, so that they can run beside one another.
RUNS, CHANGES = 4, 500
FREE: dict[str, Callable[[bytes, Set[bytes]], set[int]]] = {
    "signed.exe": free_of_program,
    "stamped.exe": free_of_program,
    "signed.msi": free_of_package,
    "stamped.msi": free_of_package,
    "signed.ps1": free_of_script,
}


@functools.cache
def _free(name: str) -> set[int]:
    data = fixture(name)
    signature = judge(data, name, fixture_trust()).signature
    assert signature is not None
    used = {certificate.der for certificate in signature.chain}
    return FREE[name](data, used)


# The first run is one of the fast tests. The others take a tenth of the time of all of them.
@pytest.mark.parametrize("run", [0, *(pytest.param(run, marks=pytest.mark.e2e) for run in range(1, RUNS))])
@pytest.mark.parametrize("name", ["stamped.exe", "stamped.msi", "signed.ps1"])
def test_no_change_of_a_protected_byte_is_valid(name: str, run: int) -> None:
    data, chance, found = fixture(name), random.Random(f"{name} {run}"), Counter[Verdict]()  # noqa: S311 - no secret
    for _ in range(CHANGES):
        offset, bits = chance.randrange(len(data)), chance.randrange(1, 256)
        verdict = judge(changed(data, offset, data[offset] ^ bits), name, fixture_trust()).verdict
        assert verdict is not Verdict.VALID or offset in _free(name), f"byte {offset} xor {bits}"
        found[verdict] += 1
    assert found[Verdict.ALTERED] > CHANGES // 5
    assert found.total() == CHANGES


def test_the_text_and_the_streams_are_protected() -> None:
    """Without the verifier's own parsers, by which the free bytes are computed."""
    text = fixture("signed.ps1").partition(b"\r\n# SIG # Begin signature block")[0]
    assert len(text) > 20
    assert min(_free("signed.ps1"), default=len(text)) >= len(text)
    package = fixture("signed.msi")
    # Parts of the summary, of the table of texts and of the cabinet.
    for content in (b"MSCF", b"ProductVersion", b"Installation Database"):
        start = package.index(content)
        assert not _free("signed.msi") & set(range(start, start + len(content)))


def test_how_much_is_not_protected() -> None:
    """With a timestamp, the timestamp. In an MSI all that is not in a stream: the header, tables, free sectors, and
    without the extended signature the directory."""
    most = {"signed.exe": 1, "stamped.exe": 40, "signed.msi": 50, "stamped.msi": 50, "signed.ps1": 1}
    assert [name for name in FREE if 100 * len(_free(name)) / len(fixture(name)) > most[name]] == []


@pytest.mark.parametrize("name", ["signed.exe", "signed.msi", "signed.ps1", "signed.cat"])
def test_no_cut_is_valid(name: str) -> None:
    data = fixture(name)
    for length in range(0, len(data), 61):
        found = judge(data[:length], name, fixture_trust())
        assert found.verdict in (Verdict.ALTERED, Verdict.UNSIGNED), length


@pytest.mark.parametrize("name", ["program.exe", "package.msi", "script.ps1", "catalogue.cat", "types.ps1xml", "x"])
def test_random_bytes_get_a_verdict(name: str) -> None:
    chance = random.Random(name)  # noqa: S311 - no secret
    beginnings = (b"", b"MZ", bytes.fromhex("D0CF11E0A1B11AE1"), b"0\x82\x10\x00", b"\xff\xfe", b"\xef\xbb\xbf")
    for number in range(120):
        data = beginnings[number % len(beginnings)] + chance.randbytes(chance.randrange(2000))
        assert judge(data, name, fixture_trust()).verdict in (Verdict.ALTERED, Verdict.UNSIGNED)
