"""The rules for the files with which signatures are judged: roots, and lists of revoked certificates. Pure."""

import contextlib
import datetime
from collections.abc import Iterable, Iterator

from imagegen.documents.yaml import YamlPath, dotted
from imagegen.judging import ERROR, WARNING, Finding, RuleInput, rule


def _own_files(given: RuleInput) -> Iterator[tuple[YamlPath, str, bytes]]:
    """The files that could be read, with their keys and names."""
    spec = next(iter(given.specs.values()), None)
    for path, name in given.config.trust_files().items():
        file = spec.own_files.get(dotted(path)) if spec else None
        if file is not None:
            yield path, name, file.data


def _roots_fault(data: bytes) -> str:
    """What is wrong with a file of roots; empty if nothing is."""
    # Few configs have such files, and what reads them takes long to import.
    from imagegen.authenticode.errors import MalformedData
    from imagegen.authenticode.trust import load_trust

    try:
        load_trust(now=datetime.datetime.now(datetime.UTC), roots=[data], public_roots=False)
    except MalformedData as error:
        return str(error)
    return ""


def _crl_fault(data: bytes) -> str:
    from imagegen.authenticode.errors import MalformedData
    from imagegen.authenticode.revocation import read_revocation_lists

    try:
        read_revocation_lists(data)
    except MalformedData as error:
        return str(error)
    return ""


@rule("signature-roots", ERROR, "artifacts.signatures.roots must be a PEM file with root certificates")
def signature_roots(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _own_files(given):
        if path[-1] == "roots" and (fault := _roots_fault(data)):
            yield Finding(path, f"{name} cannot be used: {fault}", "write the root certificates in PEM into one file")


def _find_strange(data: bytes, trusted: Iterable[bytes]) -> list[str]:
    """The subjects of the roots that neither Windows can fetch nor the config puts on the machine."""
    from imagegen.authenticode.certificates import read_certificate, read_pem
    from imagegen.authenticode.errors import MalformedData
    from imagegen.authenticode.root_list import read_public_roots

    known = {root.certificate.der for root in read_public_roots()[0]}
    for file in trusted:
        # That a file has no certificate is reported by its own key.
        with contextlib.suppress(MalformedData):
            known.update(read_pem(file))
    return [str(read_certificate(der).subject) for der in read_pem(data) if der not in known]


@rule(
    "signature-roots-on-machine",
    WARNING,
    "The own roots of artifacts.signatures.roots should be in windows.trusted_roots",
    why="The machine checks each signature again, and trusts its own store of roots. It fetches only public roots",
)
def signature_roots_on_machine(given: RuleInput) -> Iterator[Finding]:
    spec = next(iter(given.specs.values()), None)
    own = spec.own_files.items() if spec else ()
    trusted = [file.data for key, file in own if key.startswith("windows.trusted_roots[")]
    for path, name, data in _own_files(given):
        if path[-1] != "roots" or _roots_fault(data) or not (strange := _find_strange(data, trusted)):
            continue
        files = ", ".join([*given.config.windows.trusted_roots, name])
        yield Finding(
            path,
            f"{name} has {' and '.join(strange)}, which Windows does not trust: the build "
            "would refuse what is signed below",
            f"write trusted_roots: [{files}] under windows, unless your base image has "
            f"{'this root' if len(strange) == 1 else 'these roots'}",
        )


@rule("signature-crls", ERROR, "A file of artifacts.signatures.crls must be a CRL, in PEM or DER")
def signature_crls(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _own_files(given):
        if path[-1] != "roots" and (fault := _crl_fault(data)):
            yield Finding(path, f"{name} cannot be used: {fault}", "get the CRL from its CA, in PEM or DER")
