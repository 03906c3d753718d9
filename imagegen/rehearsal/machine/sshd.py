r"""sshd: its configuration, and the keys of the host that it makes when it starts.

From Win32-OpenSSH (sshd.c, servconf.c, and the sshd_config_default of its archives): without a configuration it copies
its default, and it makes the missing keys of the host."""

from __future__ import annotations

import dataclasses
import hashlib
import ntpath
import re
import secrets
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, AccessEntry, write
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.files import Files

SSHD: Final = "sshd.exe"
DATA: Final = r"C:\ProgramData\ssh"
CONFIG: Final = rf"{DATA}\sshd_config"
HOST_KEYS: Final = tuple(rf"{DATA}\ssh_host_{kind}_key" for kind in ("rsa", "ecdsa", "ed25519"))
_DEFAULT: Final = (
    "AuthorizedKeysFile .ssh/authorized_keys\nSubsystem sftp sftp-server.exe\n"
    "Match Group administrators\n       AuthorizedKeysFile __PROGRAMDATA__/ssh/administrators_authorized_keys\n"
)
_KEYWORDS: Final = frozenset(
    {
        *("port", "pubkeyauthentication", "passwordauthentication", "kbdinteractiveauthentication"),
        *("authorizedkeysfile", "subsystem", "match", "permitemptypasswords", "loglevel", "syslogfacility"),
        *("logingracetime", "maxauthtries", "strictmodes", "allowgroups", "denygroups", "hostkey", "ciphers", "macs"),
    }
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The configuration: the first value of each keyword counts, in a block for those whom it matches."""

    values: Mapping[str, str]
    of_administrators: Mapping[str, str]
    """Those of `Match Group administrators`, which come before the others."""

    def get(self, name: str, default: str) -> str:
        return self.values.get(name, default)

    @property
    def port(self) -> int:
        return int(self.get("port", "22"))

    @property
    def accepts_passwords(self) -> bool:
        return any(
            group.get("passwordauthentication", "yes").lower() == "yes"
            for group in (self.values, self._of_administrators)
        )

    @property
    def _of_administrators(self) -> Mapping[str, str]:
        return {**self.values, **self.of_administrators}

    def keys_file(self, user: str, *, administrator: bool) -> str:
        """The file with the keys of a user."""
        values = self._of_administrators if administrator else self.values
        named = values.get("authorizedkeysfile", ".ssh/authorized_keys").split()[0].replace("/", "\\")
        named = named.replace("__PROGRAMDATA__", r"C:\ProgramData").replace("%h", rf"C:\Users\{user}")
        return named if ntpath.isabs(named) else rf"C:\Users\{user}\{named}"


def read_settings(files: Files) -> Settings:
    """Raise the error with which sshd ends at a configuration that it cannot read."""
    text = files.read(CONFIG).decode("utf-8", "replace") if files.is_file(CONFIG) else _DEFAULT
    values: dict[str, str] = {}
    matched: dict[str, str] = {}
    current = values
    for number, line in enumerate(text.splitlines(), 1):
        words = re.split(r"[ \t=]+", line.strip(), maxsplit=1)
        keyword = words[0].lower()
        if not keyword or keyword.startswith("#"):
            continue
        if keyword not in _KEYWORDS or len(words) == 1:
            raise RefusedByWindows(f"sshd.exe ended: {CONFIG} line {number}: Bad configuration option: {words[0]}")
        if keyword == "match":
            if words[1].lower() != "group administrators":
                raise UnknownCommandError(f"the rehearsal does not know 'Match {words[1]}' of sshd_config")
            current = matched
        else:
            current.setdefault(keyword, words[1])
    return Settings(values, matched)


def start_sshd(files: Files) -> None:
    """What sshd writes when it starts."""
    files.make_folder(DATA)
    if not files.is_file(CONFIG):
        files.write(CONFIG, _DEFAULT.encode())
    closed = [AccessEntry(sid, "FullControl", inherit=False) for sid in (SYSTEM, ADMINISTRATORS)]
    for path in HOST_KEYS:
        if not files.is_file(path):
            key = secrets.token_hex(32)
            files.write(path, f"private {key}".encode())
            files.write(f"{path}.pub", hashlib.sha256(key.encode()).hexdigest().encode())
            write(files, path, closed, protected=True)
