"""The lists of revoked certificates of a run, and which of them are about a signature that it judged. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from imagegen.authenticode.revocation import find_forged, is_about, read_revocation_lists
from imagegen.base.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imagegen.authenticode.model import Certificate, RevocationList

    Chain = Sequence[Certificate]


@dataclasses.dataclass
class CrlUse:
    """The CRLs by their names in the config, as they were read for this run. Several threads may note what they saw."""

    data: dict[str, bytes] = dataclasses.field(default_factory=dict)
    used: set[str] = dataclasses.field(default_factory=set)
    _lists: dict[str, list[RevocationList]] = dataclasses.field(default_factory=dict, repr=False)
    """Those that were read: a CRL may have many megabytes."""

    def add(self, crls: Mapping[str, bytes]) -> None:
        """Add the CRLs that count in this run."""
        self.data |= crls

    def note(self, chains: Iterable[Chain]) -> None:
        """Note which CRLs are about these chains. One that a CA of a chain should have signed, and has not, is an
        error: it hides what that CA has revoked."""
        unused = self.data.keys() - self.used
        if not unused:
            return
        known = list(chains)
        for name in unused:
            if name not in self._lists:
                self._lists[name] = read_revocation_lists(self.data[name])
            for given, chain in itertools.product(self._lists[name], known):
                if is_about(given, chain):
                    self.used.add(name)
                elif ca := find_forged(given, chain):
                    raise VerificationError(
                        f"the CRL {name} of artifacts.signatures.crls names {ca.subject} as its issuer, but that CA "
                        "did not sign it",
                        hint="get the CRL from its CA again: this one is damaged or forged",
                    )
