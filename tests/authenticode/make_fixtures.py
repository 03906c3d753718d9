"""Makes the signed files in the folder `fixtures` beside it, with a new throw-away PKI:

    python -m tests.authenticode.make_fixtures

The programs are made by mingw-w64, the MSI by wixl, and everything is signed by osslsigncode. The certificates are
valid from START to END of `pki`, and the tests judge at NOW, so that they do not age. No key is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.authenticode.cms import PE_IMAGE
from imagegen.authenticode.files import PortableExecutable
from tests.authenticode.pki import STAMPED, Pki, make_authority, make_ca, make_root, make_signer, rsa_key
from tests.authenticode.signing import unsigned_catalogue
from tests.authenticode.tools import Tools, find_tools

if TYPE_CHECKING:
    from collections.abc import Iterable

FIXTURES = Path(__file__).with_name("fixtures")
# A file of this form is known by all of its bytes. It is what signing programs call it in catalogues.
FLAT = "de351a42-8e59-11d0-8c47-00c04fc295ee"
SCRIPT = b"Write-Output 'Hello'\r\nexit 0\r\n"
_PROGRAM = "int entry(void) { return 0; }\n"
_BUILD = (
    "-nostdlib",
    "-s",
    "-fno-ident",
    "-fno-asynchronous-unwind-tables",
    "-Wl,-e,entry",
    "-Wl,--no-insert-timestamp",
)
_PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
  <Product Id="*" UpgradeCode="8f7f0a6c-3b5e-4f0c-9b57-6f1c1d3f5a01" Name="Example" Version="1.0.0"
           Manufacturer="Example" Language="1033">
    <Package InstallerVersion="200" Compressed="yes"/>
    <Media Id="1" Cabinet="example.cab" EmbedCab="yes"/>
    <Directory Id="TARGETDIR" Name="SourceDir">
      <Directory Id="ProgramFilesFolder">
        <Directory Id="EXAMPLE" Name="Example">
          <Component Id="Program" Guid="8f7f0a6c-3b5e-4f0c-9b57-6f1c1d3f5a02">
            <File Id="Program" Source="program.exe" KeyPath="yes"/>
          </Component>
        </Directory>
      </Directory>
    </Directory>
    <Feature Id="Example" Level="1"><ComponentRef Id="Program"/></Feature>
  </Product>
</Wix>
"""


def make_pki() -> Pki:
    """As `pki`, but with RSA keys, which most real signers have."""
    root, clock_root = make_root(key=rsa_key(0)), make_root("O=Example, CN=Example Clock Root")
    ca = make_ca(root, key=rsa_key(1))
    return Pki(root, ca, make_signer(ca, key=rsa_key(2)), clock_root, make_authority(clock_root, key=rsa_key(3)))


def write_sources(folder: Path, tools: Tools) -> None:
    """Make the files that are signed."""
    (folder / "program.c").write_text(_PROGRAM)
    tools.run([tools.gcc, *_BUILD, "-o", "program.exe", "program.c"], folder)
    (folder / "package.wxs").write_text(_PACKAGE)
    tools.run([tools.wixl, "-o", "package.msi", "package.wxs"], folder)
    (folder / "script.ps1").write_bytes(SCRIPT)
    (folder / "mark.ps1").write_bytes("\ufeffWrite-Output 'Grüße'\r\n".encode())
    (folder / "wide.ps1").write_bytes("\ufeffWrite-Output 'Grüße'\r\n".encode("utf-16-le"))
    (folder / "types.ps1xml").write_bytes(b"<Types></Types>\r\n")
    (folder / "catalogue.cat").write_bytes(unsigned_catalogue(_members(folder)))


def _members(folder: Path) -> list[tuple[str, str, bytes]]:
    with (folder / "program.exe").open("rb") as opened:
        program = PortableExecutable(opened).digest("sha256")
    return [(PE_IMAGE, "sha256", program), (FLAT, "sha256", _flat("sha256")), (FLAT, "sha1", _flat("sha1", b"old"))]


def _flat(algorithm: str, data: bytes = SCRIPT) -> bytes:
    return hashlib.new(algorithm, data).digest()


class Signing:
    """osslsigncode's options for one PKI."""

    def __init__(self, folder: Path, found: Pki) -> None:
        def write(name: str, parts: Iterable[bytes]) -> Path:
            (folder / name).write_bytes(b"".join(parts))
            return folder / name

        signer = write("signer.pem", [found.signer.pem]), write("signer.key", [found.signer.key_pem])
        clock = write("clock.pem", [found.clock.pem, found.clock_root.pem]), write("clock.key", [found.clock.key_pem])
        time = str(int(STAMPED.timestamp()))
        others = write("ca.pem", [found.ca.pem])
        self.root, self.clock_root = (
            write("root.pem", [found.root.pem]),
            write("clock-root.pem", [found.clock_root.pem]),
        )
        self.plain: list[str | Path] = ["-certs", signer[0], "-key", signer[1], "-ac", others, "-time", time]
        self.stamped = [*self.plain, "-TSA-certs", clock[0], "-TSA-key", clock[1], "-TSA-time", time]


def sign_all(folder: Path, tools: Tools, signing: Signing) -> list[str]:
    """Sign the sources. The names of the signed files."""
    rows: tuple[tuple[str, str, list[str | Path]], ...] = (
        ("program.exe", "signed.exe", [*signing.plain, "-h", "sha256", "-n", "Example", "-i", "https://example.com/"]),
        ("program.exe", "stamped.exe", [*signing.stamped, "-h", "sha256"]),
        ("program.exe", "weak.exe", [*signing.plain, "-h", "sha1"]),
        ("weak.exe", "nested.exe", [*signing.stamped, "-h", "sha256", "-nest"]),
        ("package.msi", "signed.msi", [*signing.plain, "-h", "sha256"]),
        ("package.msi", "stamped.msi", [*signing.stamped, "-h", "sha256", "-add-msi-dse"]),
        ("script.ps1", "signed.ps1", [*signing.plain, "-h", "sha256"]),
        ("mark.ps1", "stamped-mark.ps1", [*signing.stamped, "-h", "sha256"]),
        ("wide.ps1", "signed-wide.ps1", [*signing.plain, "-h", "sha256"]),
        ("types.ps1xml", "signed.ps1xml", [*signing.plain, "-h", "sha256"]),
        ("catalogue.cat", "signed.cat", [*signing.stamped, "-h", "sha256"]),
    )
    for source, target, options in rows:
        tools.sign(folder / source, folder / target, *options)
    return [target for _, target, _ in rows]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = find_tools(folder)
        write_sources(folder, tools)
        signing = Signing(folder, make_pki())
        names = sign_all(folder, tools, signing)
        FIXTURES.mkdir(exist_ok=True)
        for name in [*names, "program.exe", "package.msi", "script.ps1", signing.root.name, signing.clock_root.name]:
            shutil.copyfile(folder / name, FIXTURES / name)


if __name__ == "__main__":
    main()
