"""Removes secrets from lines before they are logged, shown or put into an error. Pure."""

import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"

# Signatures and session tokens in URLs that grant access.
_SIGNED = re.compile(r"(?i)\b(sig|X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential)(=|%3D)[^&\s\"'<>,;|]+")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s\"'@]+@")
# As HCL or JSON writes it (quoted, with escapes), or as `name=value`.
_PASSWORD = re.compile(
    r"(?i)\b(winrm_?password|client_secret|secret_key|administrator_?password)(\\?[\"']?\s*[:=]\s*)"
    r"(\\?\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"',]+)"
)
_AUTHORIZATION = re.compile(r"(?i)\b(Bearer|Basic|Negotiate)\s+[A-Za-z0-9+/=._~-]{8,}")


def scrub(line: str, secrets: Iterable[str] = ()) -> str:
    """The line without the known secrets, and without anything that looks like a secret."""
    for secret in secrets:
        line = line.replace(secret, HIDDEN)
    line = _SIGNED.sub(rf"\1\2{HIDDEN}", line)
    line = _USERINFO.sub(rf"\1{HIDDEN}@", line)
    line = _PASSWORD.sub(rf"\1\2{HIDDEN}", line)
    return _AUTHORIZATION.sub(rf"\1 {HIDDEN}", line)
