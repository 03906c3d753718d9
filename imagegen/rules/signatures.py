"""The rules for signatures: the files with which they are judged (roots, and lists of revoked certificates), and what
no signature covers; and for the authorities of downloads. Pure, except that they read the presets of signers."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from imagegen.config.artifact_policy import PinnedUrl, Signer
from imagegen.config.yaml import YamlPath, dotted
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule

if TYPE_CHECKING:
    from imagegen.authenticode.model import Certificate


def _own_files(given: RuleInput) -> Iterator[tuple[YamlPath, str, bytes]]:
    """The files that could be read, with their keys and names."""
    spec = next(iter(given.specs.values()), None)
    for path, name in given.config.trust_files().items():
        file = spec.own_files.get(dotted(path)) if spec else None
        if file is not None:
            yield path, name, file.data


def _read_roots(data: bytes) -> list[Certificate]:
    # Few configs have such files, and what reads them takes long to import.
    from imagegen.authenticode.certificates import read_certificate, read_pem

    return [read_certificate(one) for one in read_pem(data)]


def _roots_fault(data: bytes) -> str:
    """What is wrong with a file of roots; empty if nothing is."""
    from imagegen.authenticode.model import MalformedData

    try:
        roots = _read_roots(data)
    except MalformedData as error:
        return f"cannot be used: {error}"
    if not roots:
        return "cannot be used: the file holds no certificate"
    other = next((one for one in roots if not one.is_self_issued), None)
    return f"has {other.subject}, which is not a root: its issuer is {other.issuer}" if other else ""


def _crl_fault(data: bytes) -> str:
    from imagegen.authenticode.chains import read_revocation_lists
    from imagegen.authenticode.model import MalformedData

    try:
        read_revocation_lists(data)
    except MalformedData as error:
        return str(error)
    return ""


@rule(
    "signature-roots",
    ERROR,
    "artifacts.signatures.roots must be a PEM file with root certificates",
    why="Windows trusts a signature only if it leads to a root, so the machine would reject every other one",
)
def signature_roots(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _own_files(given):
        if path[-1] == "roots" and (fault := _roots_fault(data)):
            yield Finding(path, f"{name} {fault}", "write the root certificates in PEM into one file")


@rule(
    "signature-roots-of-preset",
    ERROR,
    "artifacts.signatures.roots must have a root of each preset that may sign",
    why="the roots of the file are the only ones, so no signature of the preset would lead to a trusted root",
)
def signature_roots_of_preset(given: RuleInput) -> Iterator[Finding]:
    found = next(((name, data) for path, name, data in _own_files(given) if path[-1] == "roots"), None)
    signers = [(path, one) for path, one in _signers(given) if isinstance(one, str)] if found else []
    if found is None or not signers or _roots_fault(found[1]):
        return
    from imagegen.authenticode.signer import presets

    name, trusted = found[0], {one.sha256 for one in _read_roots(found[1])}
    for path, signer in signers:
        preset = presets().get(signer.strip())
        if preset and not trusted & {item.issuer.thumbprint for item in preset.conditions if item.issuer}:
            yield Finding(
                path,
                f"no signature of {signer} can be accepted, because {name} has none of its roots",
                f"run `imagegen catalog preset-roots >> {shlex.quote(name)}` in the folder of the config",
            )


def _signers(given: RuleInput) -> Iterator[tuple[YamlPath, str | Signer]]:
    """Each allowed signer with its place."""
    policy = given.config.artifacts.signatures
    for at, signer in enumerate(policy.signers if policy else ()):
        yield ("artifacts", "signatures", "signers", at), signer.given
    for name, item in given.config.overrides.items():
        if isinstance(item, PinnedUrl) and item.signer is not None:
            yield ("overrides", name, "signer"), item.signer.given


def _find_strange(data: bytes, trusted: Iterable[bytes]) -> list[str]:
    """The subjects of the roots that neither Windows can fetch nor the config puts on the machine."""
    from imagegen.authenticode.certificates import read_certificate, read_pem
    from imagegen.authenticode.model import MalformedData
    from imagegen.authenticode.trust import read_public_roots

    strange = dict.fromkeys(read_pem(data))
    for file in trusted:
        # That a file has no certificate is reported by its own key.
        with contextlib.suppress(MalformedData):
            for der in read_pem(file):
                strange.pop(der, None)
    # The public ones take half a second to read.
    public = {root.certificate.der for root in read_public_roots()[0]} if strange else set[bytes]()
    return [str(read_certificate(der).subject) for der in strange if der not in public]


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


@rule(
    "signature-crls",
    ERROR,
    "A file of artifacts.signatures.crls must be a CRL, in PEM or DER",
    why="without its list, a certificate that was revoked would still be accepted",
)
def signature_crls(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _own_files(given):
        if path[-1] != "roots" and (fault := _crl_fault(data)):
            yield Finding(path, f"{name} cannot be used: {fault}", "get the CRL from its CA, in PEM or DER")


kube_proxy_and_signatures = simple_rule(
    "kube-proxy-and-signatures",
    WARNING,
    "kube-proxy should be a program of the image where artifacts.signatures requires signatures",
    lambda given: given.config.kube_proxy == "hostprocess" and given.config.artifacts.signatures,
    Finding(
        ("kube_proxy",),
        "kube-proxy is in a container image, and runs as SYSTEM on the node: nobody checks its signature",
        "write kube_proxy: service, which runs a signed program of the image, or kube_proxy: none",
    ),
)


@rule(
    "download-ca-valid",
    ERROR,
    "The certificates of artifacts.ca must be valid today",
    why="a server whose certificate leads to an expired root is refused, by imagegen and by the machine",
)
def download_ca_valid(given: RuleInput) -> Iterator[Finding]:
    spec = next(iter(given.specs.values()), None)
    for path, name in given.config.ca_files().items():
        file = spec.own_files.get(dotted(path)) if spec else None
        # A file that cannot be used is reported by its own key.
        for one in _read_roots(file.data) if file and not _roots_fault(file.data) else ():
            begins, ends = one.not_before.date(), one.not_after.date()
            if not begins <= given.today <= ends:
                when = f"expired on {ends}" if ends < given.today else f"is not valid before {begins}"
                yield Finding(path, f"{name}: {one.subject} {when}", "give the present root of your authority")
