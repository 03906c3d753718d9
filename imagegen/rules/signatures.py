"""The rules for the files with which signatures are judged: roots, and lists of revoked certificates. Pure."""

import datetime
from collections.abc import Iterator

from imagegen.documents.yaml import YamlPath, dotted
from imagegen.judging import ERROR, Finding, RuleInput, rule


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


@rule("signature-crls", ERROR, "A file of artifacts.signatures.crls must be a CRL, in PEM or DER")
def signature_crls(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _own_files(given):
        if path[-1] != "roots" and (fault := _crl_fault(data)):
            yield Finding(path, f"{name} cannot be used: {fault}", "get the CRL from its CA, in PEM or DER")
