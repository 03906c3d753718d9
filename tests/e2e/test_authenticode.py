"""Real files, made by mingw-w64 and wixl and signed by osslsigncode, get the verdicts that osslsigncode gives."""

from __future__ import annotations

import dataclasses
import datetime
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from imagegen.authenticode.model import Trust, Verdict
from imagegen.authenticode.trust import load_trust
from tests.authenticode.compound import Tree, make_compound_file
from tests.authenticode.make_fixtures import Signing, make_pki, sign_all, write_sources
from tests.authenticode.pki import (
    CODE,
    LATER,
    NOW,
    STAMPED,
    START,
    Identity,
    Pki,
    issue,
    make_authority,
    make_ca,
    make_crl,
    make_root,
    make_signer,
    rsa_key,
)
from tests.authenticode.signing import (
    TOKEN,
    Options,
    make_catalogue,
    make_token,
    put_into_pe,
    sign_pe,
    sign_script,
    signature_of,
    table,
    table_entry,
)
from tests.authenticode.support import changed, judge
from tests.authenticode.tools import Tools, find_tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.e2e

V = Verdict
DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Workshop:
    """The tools, and a folder with signed files and the PKI that signed them."""

    folder: Path
    tools: Tools
    pki: Pki
    signing: Signing

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def trust(self, now: datetime.datetime, crl: bytes | None) -> Trust:
        roots = [self.pki.root.pem, self.pki.clock_root.pem]
        return load_trust(now=now, roots=roots, crls=[crl] if crl else [], public_roots=False)

    def osslsigncode(self, data: bytes, name: str, now: datetime.datetime, crl: bytes | None) -> tuple[bool, str]:
        """Whether osslsigncode verifies the file, and what it prints."""
        file = self.folder / f"judged-{name}"
        file.write_bytes(data)
        argv: list[str | Path] = [self.tools.osslsigncode, "verify", "-ignore-cdp", "-in", file]
        argv += [
            "-CAfile",
            self.signing.root,
            "-TSA-CAfile",
            self.signing.clock_root,
            "-time",
            str(int(now.timestamp())),
        ]
        if crl:
            (self.folder / "judged.crl").write_bytes(crl)
            argv += ["-CRLfile", self.folder / "judged.crl"]
        code, output = self.tools.run(argv, self.folder, codes=(0, 1))
        return code == 0, output


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    folder = tmp_path_factory.mktemp("signed")
    tools = find_tools(folder)
    write_sources(folder, tools)
    found = make_pki()
    signing = Signing(folder, found)
    sign_all(folder, tools, signing)
    return Workshop(folder, tools, found, signing)


@dataclasses.dataclass(frozen=True)
class Case:
    """A file, imagegen's verdict, and whether osslsigncode verifies it, or why it is not asked."""

    name: str
    make: Callable[[Workshop], bytes]
    verdict: Verdict
    verifies: bool | str
    now: datetime.datetime = NOW
    crl: Callable[[Workshop], bytes] | None = None


def _file(name: str) -> Callable[[Workshop], bytes]:
    return lambda shop: shop.read(name)


def _flip(name: str, place: Callable[[bytes], int]) -> Callable[[Workshop], bytes]:
    return lambda shop: changed(shop.read(name), place(shop.read(name)))


def _edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Workshop], bytes]:
    return lambda shop: change(shop.read(name))


def _pe(
    signer: Callable[[Pki], Identity], options: Callable[[Pki], Options] = lambda _: Options()
) -> Callable[[Workshop], bytes]:
    """The program, signed by the tests' own signer."""
    return lambda shop: sign_pe(shop.read("program.exe"), signer(shop.pki), options(shop.pki))


def _osslsigncode(source: str, *options: str, stamped: bool = False) -> Callable[[Workshop], bytes]:
    """A file signed by osslsigncode with more options."""

    def sign(shop: Workshop) -> bytes:
        target = shop.folder / f"more-{source}"
        target.unlink(missing_ok=True)
        shop.tools.sign(
            shop.folder / source, target, *(shop.signing.stamped if stamped else shop.signing.plain), *options
        )
        return target.read_bytes()

    return sign


def _stripped(shop: Workshop) -> bytes:
    target = shop.folder / "stripped.exe"
    target.unlink(missing_ok=True)
    argv: list[str | Path] = [
        shop.tools.osslsigncode,
        "remove-signature",
        "-in",
        shop.folder / "signed.exe",
        "-out",
        target,
    ]
    shop.tools.run(argv, shop.folder)
    return target.read_bytes()


def _swapped(shop: Workshop) -> bytes:
    return put_into_pe(changed(shop.read("program.exe"), 1600), signature_of(shop.read("signed.exe")))


def _payload(shop: Workshop) -> bytes:
    return put_into_pe(shop.read("program.exe"), signature_of(shop.read("signed.exe")) + b"payload!")


def _no_more_table(data: bytes) -> bytes:
    copy = bytearray(data)
    struct.pack_into("<II", copy, table_entry(data), 0, 0)
    return bytes(copy)


def _other_token(shop: Workshop) -> bytes:
    token = make_token(shop.pki.clock, b"another signature", STAMPED)
    return sign_pe(shop.read("program.exe"), shop.pki.signer, Options(unsigned={TOKEN: [token]}))


def _signer(**options: Any) -> Callable[[Pki], Identity]:  # noqa: ANN401 - those of `issue`
    return lambda pki: make_signer(pki.ca, **options)


def _own(pki: Pki) -> Identity:
    return pki.signer


def _stamped_by(**options: Any) -> Callable[[Pki], Options]:  # noqa: ANN401 - those of `issue`
    return lambda pki: Options(timestamps=[make_authority(pki.clock_root, **options)])


SERVER = ExtendedKeyUsageOID.SERVER_AUTH
PAST = (START, STAMPED - DAY)
CASES: dict[str, Case] = {
    "no signature": Case("x.exe", _file("program.exe"), V.UNSIGNED, False),
    "a program": Case("x.exe", _file("signed.exe"), V.VALID, True),
    "a program with a timestamp": Case("x.exe", _file("stamped.exe"), V.VALID, True),
    "SHA-1": Case("x.exe", _file("weak.exe"), V.WEAK_DIGEST, "it takes every digest"),
    "SHA-1 and SHA-256": Case("x.exe", _file("nested.exe"), V.VALID, True),
    "SHA-384": Case("x.exe", _osslsigncode("program.exe", "-h", "sha384"), V.VALID, True),
    "page hashes": Case("x.exe", _osslsigncode("program.exe", "-h", "sha256", "-ph"), V.VALID, True),
    "an MSI": Case("x.msi", _file("signed.msi"), V.VALID, True),
    "an MSI with a timestamp": Case("x.msi", _file("stamped.msi"), V.VALID, True),
    "an MSI without a signature": Case("x.msi", _file("package.msi"), V.UNSIGNED, False),
    "a script": Case("x.ps1", _file("signed.ps1"), V.VALID, True),
    "a script with a mark": Case("x.ps1", _file("stamped-mark.ps1"), V.VALID, True),
    "a script in UTF-16": Case("x.ps1", _file("signed-wide.ps1"), V.VALID, True),
    "a module": Case("x.psm1", _file("signed.ps1"), V.VALID, True),
    "a script in XML": Case("x.ps1xml", _file("signed.ps1xml"), V.VALID, True),
    "a script without a signature": Case("x.ps1", _file("script.ps1"), V.UNSIGNED, False),
    "a catalogue": Case("x.cat", _file("signed.cat"), V.VALID, True),
    "a program, later": Case("x.exe", _file("signed.exe"), V.EXPIRED, False, LATER),
    "a program with a timestamp, later": Case("x.exe", _file("stamped.exe"), V.VALID, True, LATER),
    "an MSI, later": Case("x.msi", _file("signed.msi"), V.EXPIRED, False, LATER),
    "an MSI with a timestamp, later": Case("x.msi", _file("stamped.msi"), V.VALID, True, LATER),
    "a script, later": Case("x.ps1", _file("signed.ps1"), V.EXPIRED, False, LATER),
    "a script with a timestamp, later": Case("x.ps1", _file("stamped-mark.ps1"), V.VALID, True, LATER),
    "a catalogue with a timestamp, later": Case("x.cat", _file("signed.cat"), V.VALID, True, LATER),
    "a byte of the header": Case("x.exe", _flip("stamped.exe", lambda _: 40), V.ALTERED, False),
    "a byte of the program": Case("x.exe", _flip("stamped.exe", lambda _: 1600), V.ALTERED, False),
    "a byte of the signature": Case("x.exe", _flip("signed.exe", lambda data: table(data)[0] + 120), V.ALTERED, False),
    "a byte of the signed value": Case(
        "x.exe", _flip("signed.exe", lambda data: data.rindex(b"\4\x82\1\0") + 9), V.ALTERED, False
    ),
    "bytes after the table": Case("x.exe", _edit("signed.exe", lambda data: data + bytes(8)), V.ALTERED, False),
    "a cut program": Case("x.exe", _edit("signed.exe", lambda data: data[:-8]), V.ALTERED, False),
    "a payload in the table": Case("x.exe", _payload, V.ALTERED, "it ignores what follows a signature"),
    "the signature removed": Case("x.exe", _stripped, V.UNSIGNED, False),
    "the table's entry removed": Case("x.exe", _edit("signed.exe", _no_more_table), V.UNSIGNED, False),
    "another program's signature": Case("x.exe", _swapped, V.ALTERED, False),
    "a byte of an MSI's stream": Case("x.msi", _flip("signed.msi", lambda data: data.index(b"MSCF")), V.ALTERED, False),
    "the time of an MSI's stream": Case(
        "x.msi",
        _flip("stamped.msi", lambda data: data.index("\5SummaryInformation".encode("utf-16-le")) + 108),
        V.ALTERED,
        False,
    ),
    "bytes after an MSI": Case(
        "x.msi",
        _edit("signed.msi", lambda data: data + b"PK\3\4" * 128),
        V.ALTERED,
        "it ignores what follows the last sector",
    ),
    "a letter of a script": Case("x.ps1", _edit("signed.ps1", lambda data: data.replace(b"H", b"h")), V.ALTERED, False),
    "a mark before a script": Case("x.ps1", _edit("signed.ps1", lambda data: b"\xef\xbb\xbf" + data), V.ALTERED, False),
    "other line ends in a script": Case(
        "x.ps1", _edit("signed.ps1", lambda data: data[:30].replace(b"\r\n", b"\n") + data[30:]), V.ALTERED, False
    ),
    "code after the block": Case(
        "x.ps1", _edit("signed.ps1", lambda data: data + b"rm\r\n"), V.ALTERED, "it ignores what follows the block"
    ),
    "a byte of a catalogue's list": Case(
        "x.cat", _flip("signed.cat", lambda data: data.index(b"\4\x20") + 9), V.ALTERED, False
    ),
    "self-signed": Case("x.exe", _pe(lambda _: issue("O=Example, CN=Alone", usages=[CODE])), V.UNTRUSTED, False),
    "another root": Case("x.exe", _pe(lambda _: make_signer(make_root("O=Other, CN=Other"))), V.UNTRUSTED, False),
    "a missing CA": Case("x.exe", _pe(_own, lambda pki: Options(certificates=[pki.signer])), V.UNTRUSTED, False),
    "a program's certificate as a CA": Case(
        "x.exe", _pe(lambda pki: make_signer(make_signer(pki.ca, "O=Example, CN=No CA"))), V.UNTRUSTED, False
    ),
    "too many CAs": Case(
        "x.exe",
        _pe(lambda pki: make_signer(make_ca(make_ca(pki.root, longest_path=0), "O=Example, CN=Below"))),
        V.UNTRUSTED,
        False,
    ),
    "a server's certificate": Case("x.exe", _pe(_signer(usages=[SERVER])), V.WRONG_USAGE, False),
    "a key that may not sign": Case(
        "x.exe", _pe(_signer(key_usages=["key_encipherment"])), V.WRONG_USAGE, "it looks at this since 2.11"
    ),
    "an expired certificate": Case("x.exe", _pe(_signer(valid=PAST)), V.EXPIRED, False),
    "an elliptic key": Case("x.exe", _pe(_signer()), V.VALID, True),
    "RSA-PSS": Case(
        "x.exe", _pe(_signer(key=rsa_key(5)), lambda _: Options(pss=True)), V.VALID, "OpenSSL has no PSS in PKCS #7"
    ),
    "a countersignature": Case(
        "x.exe", _pe(_own, lambda pki: Options(countersigners=[pki.clock])), V.VALID, True, LATER
    ),
    "a countersigned script": Case(
        "x.ps1",
        lambda shop: sign_script(shop.read("script.ps1"), shop.pki.signer, Options(countersigners=[shop.pki.clock])),
        V.VALID,
        True,
        LATER,
    ),
    "a stamped catalogue": Case(
        "x.cat",
        lambda shop: make_catalogue([], shop.pki.signer, Options(timestamps=[shop.pki.clock])),
        V.VALID,
        True,
        LATER,
    ),
    "an unknown timestamp authority": Case(
        "x.exe",
        _pe(_own, lambda _: Options(timestamps=[make_authority(make_root("O=Other, CN=Other"))])),
        V.BAD_TIMESTAMP,
        False,
        LATER,
    ),
    "a signer of code as a timestamp authority": Case(
        "x.exe", _pe(_own, _stamped_by(usages=[CODE])), V.BAD_TIMESTAMP, False, LATER
    ),
    "the timestamp of another signature": Case("x.exe", _other_token, V.BAD_TIMESTAMP, False, LATER),
    "revoked": Case(
        "x.exe",
        _file("signed.exe"),
        V.REVOKED,
        False,
        crl=lambda shop: make_crl(shop.pki.ca, [(shop.pki.signer, STAMPED, None)]) + make_crl(shop.pki.root),
    ),
    "revoked before the timestamp": Case(
        "x.exe",
        _file("stamped.exe"),
        V.REVOKED,
        False,
        crl=lambda shop: make_crl(shop.pki.ca, [(shop.pki.signer, STAMPED - DAY, None)]) + make_crl(shop.pki.root),
    ),
    "not revoked": Case(
        "x.exe",
        _file("signed.exe"),
        V.VALID,
        True,
        crl=lambda shop: make_crl(shop.pki.ca) + make_crl(shop.pki.root),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_that_of_osslsigncode(shop: Workshop, case: Case) -> None:
    data = case.make(shop)
    crl = case.crl(shop) if case.crl else None
    found = judge(data, case.name, shop.trust(case.now, crl))
    verifies, output = shop.osslsigncode(data, case.name, case.now, crl)
    assert found.verdict is case.verdict, found.reason
    if isinstance(case.verifies, bool):
        assert verifies is case.verifies, output


def test_osslsigncode_judges_most_of_them() -> None:
    compared = [case for case in CASES.values() if isinstance(case.verifies, bool)]
    assert len(compared) >= 40
    # Where it judges, it agrees.
    assert [case for case in compared if case.verifies is not (case.verdict is V.VALID)] == []


# Each with the greatest size of a stream: the second has more tables than fit in the header.
@pytest.mark.parametrize("size", [5_000, 9_000_000])
@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("extended", [False, True])
def test_packages_of_other_shapes(shop: Workshop, size: int, version: int, extended: bool) -> None:
    """With storages, with long sectors, and with a list of tables: osslsigncode signs them, and both verify them."""
    content = random.Random(size).randbytes(size)  # noqa: S311 - no secret
    tree: Tree = {"cabinet": content, "A": b"short", "inner": {"b": content[:6000], "a": b"1"}}
    source, target = shop.folder / "shape.msi", shop.folder / "shape-signed.msi"
    source.write_bytes(make_compound_file(tree, version))
    target.unlink(missing_ok=True)
    shop.tools.sign(source, target, *shop.signing.plain, *(["-add-msi-dse"] if extended else []))
    data = target.read_bytes()
    assert shop.osslsigncode(data, "x.msi", NOW, None)[0]
    found = judge(data, "x.msi", shop.trust(NOW, None))
    assert found.verdict is V.VALID, found.reason
    place = data.index(content[-64:])
    assert judge(changed(data, place), "x.msi", shop.trust(NOW, None)).verdict is V.ALTERED
