"""The usages of certificates that matter here, by their object identifiers, and their names for people."""

from collections.abc import Iterable
from typing import Final

CODE_SIGNING: Final = "1.3.6.1.5.5.7.3.3"
TIME_STAMPING: Final = "1.3.6.1.5.5.7.3.8"
ANY_USAGE: Final = "2.5.29.37.0"
# A signature by such a certificate ends with the certificate, timestamp or not.
LIFETIME_SIGNING: Final = "1.3.6.1.4.1.311.10.3.13"

_NAMES: Final = {
    CODE_SIGNING: "code signing",
    TIME_STAMPING: "time stamping",
    ANY_USAGE: "any usage",
    LIFETIME_SIGNING: "lifetime signing",
    "1.3.6.1.5.5.7.3.1": "server authentication",
    "1.3.6.1.5.5.7.3.2": "client authentication",
    "1.3.6.1.5.5.7.3.4": "e-mail protection",
    "1.3.6.1.5.5.7.3.9": "OCSP signing",
}


def usage_names(usages: Iterable[str]) -> str:
    """The usages as a list for people."""
    return ", ".join(_NAMES.get(usage, usage) for usage in sorted(usages)) or "none"
