r"""The certificate stores of a Windows machine, by names as `LocalMachine\My`, which Windows compares without case."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MY: Final = r"LocalMachine\My"
ROOT: Final = r"LocalMachine\Root"
TRUSTED_PUBLISHER: Final = r"LocalMachine\TrustedPublisher"
DISALLOWED: Final = r"LocalMachine\Disallowed"


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A certificate. Of some, the model knows only the thumbprint."""

    thumbprint: str
    """In capitals."""
    data: bytes = b""
    """X.509, as DER."""
    key: bytes = dataclasses.field(default=b"", repr=False)
    """The private key as PKCS #8 in DER, which Windows keeps apart from the store. Empty if the machine has none."""


class CertificateStores:
    """The stores of the machine and of its accounts."""

    def __init__(self) -> None:
        self._stores: dict[str, dict[str, Certificate]] = {MY.lower(): {}}
        self._names = {MY.lower(): MY}

    def __iter__(self) -> Iterator[str]:
        """The names of the stores."""
        return iter(self._names.values())

    def exists(self, store: str) -> bool:
        return store.lower() in self._stores

    def add(self, certificate: Certificate, store: str = MY) -> None:
        """Add a certificate, also in place of the same one. Windows makes a store that does not exist."""
        self._names.setdefault(store.lower(), store)
        self._stores.setdefault(store.lower(), {})[certificate.thumbprint] = certificate

    def add_root(self, data: bytes, thumbprint: str) -> None:
        """Add a root, which Windows trusts from then on."""
        self.add(Certificate(thumbprint, data), ROOT)

    def find(self, thumbprint: str, store: str = MY) -> Certificate | None:
        return self._stores.get(store.lower(), {}).get(thumbprint.upper())

    def remove(self, thumbprint: str, store: str = MY) -> None:
        self._stores.get(store.lower(), {}).pop(thumbprint.upper(), None)

    def thumbprints(self, store: str = MY) -> frozenset[str]:
        return frozenset(self._stores.get(store.lower(), {}))
