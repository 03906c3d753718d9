"""The operator's rules about who may have signed: reads them, applies them to a certificate, and tells what differs.

A rule is one of

* attributes of the subject, `CN=Example Corporation, O="Example, Inc."`. All that are given must match, in any order.
  A type that is given must have exactly the given values: a certificate with a second CN is another one;
* a thumbprint of the signer's certificate, SHA-1 or SHA-256;
* `issuer: …` with attributes or a thumbprint: a CA anywhere above the signer (direct, one above it, or the root);
* a map of these, `{subject: …, thumbprint: …, issuer: …}`: all that are given must match;
* the name of a preset (presets.json), which stands for several of these: one of them must match.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from imagegen.authenticode.model import Name

# https://learn.microsoft.com/windows/win32/seccrypto/x-500-attributes and the names that certmgr shows.
SHORT_TYPES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.4": "SN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "S",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.12": "T",
    "2.5.4.42": "G",
    "1.2.840.113549.1.9.1": "E",
    "0.9.2342.19200300.100.1.25": "DC",
}
_OTHER_SPELLINGS: Final = {
    "COMMONNAME": "CN",
    "ORGANIZATION": "O",
    "ORGANIZATIONNAME": "O",
    "ORGANIZATIONALUNIT": "OU",
    "ORGANIZATIONALUNITNAME": "OU",
    "COUNTRY": "C",
    "COUNTRYNAME": "C",
    "LOCALITY": "L",
    "LOCALITYNAME": "L",
    "ST": "S",
    "SP": "S",
    "STATE": "S",
    "STATEORPROVINCENAME": "S",
    "STREETADDRESS": "STREET",
    "TITLE": "T",
    "GIVENNAME": "G",
    "SURNAME": "SN",
    "EMAIL": "E",
    "EMAILADDRESS": "E",
    "DOMAINCOMPONENT": "DC",
}
_OID: Final = re.compile(r"(?:OID\.)?([0-2](?:\.(?:0|[1-9][0-9]{0,38})){1,30})", re.IGNORECASE)
# Other programs write names with these.
_OTHER_SEPARATOR: Final = re.compile(r"\s*([;+])\s*[A-Za-z0-9.]+\s*=")
_ATTRIBUTE: Final = re.compile(r'\s*([A-Za-z0-9.]+)\s*=\s*(?:"((?:[^"]|"")*)"|([^",]*))\s*(,|$)')
# The forms of OpenSSL: /C=US/O=Example/CN=Example Inc, and C=US, O=Example\, Inc.
_SLASH: Final = re.compile("/(?=[A-Za-z0-9.]+=)")
_UNESCAPED_COMMA: Final = re.compile(r"(?<!\\),")
_KNOWN: Final = ", ".join(SHORT_TYPES.values())


def short_type(oid: str) -> str:
    """The short type of an object identifier; of an unusual one, the identifier."""
    return SHORT_TYPES.get(oid, oid)


def parse_type(text: str) -> str:
    """The short type that a person wrote in any of its spellings."""
    upper = text.upper()
    if upper in SHORT_TYPES.values():
        return upper
    if upper in _OTHER_SPELLINGS:
        return _OTHER_SPELLINGS[upper]
    if found := _OID.fullmatch(text):
        return short_type(found[1])
    raise ValueError(f'unknown attribute "{text}" (known: {_KNOWN}, or an object identifier such as 2.5.4.15)')


def parse_name(text: str) -> tuple[tuple[str, str], ...]:
    """The attributes of `CN=…, O="… with a comma, Inc."`."""
    attributes = []
    position = 0
    while position < len(text):
        found = _ATTRIBUTE.match(text, position)
        if not found:
            if meant := _from_openssl(text):
                raise ValueError(f'"{text}" is in the form of OpenSSL: write {meant}')
            raise ValueError(f'"{text[position:].strip()}" is not of the form CN=…, O="…"')
        quoted, plain = found[2], found[3]
        if plain and (separated := _OTHER_SEPARATOR.search(plain)):
            raise ValueError(
                f'"{found[0].strip()}" has "{separated[1]}" between attributes: write "," in its place, '
                f'or {found[1]}="{plain.strip()}" if it is part of the value'
            )
        value = quoted.replace('""', '"') if quoted is not None else plain.strip()
        kind = parse_type(found[1])
        if not value:
            raise ValueError(f"{kind} has no value")
        attributes.append((kind, value))
        position = found.end()
        if found[4] == "," and position == len(text):
            raise ValueError("there is nothing after the last comma")
    if not attributes:
        raise ValueError("the name is empty")
    return tuple(attributes)


def _from_openssl(text: str) -> str:
    """A name as OpenSSL and osslsigncode print it, in the form of Windows. Empty: it is not in such a form."""
    first, *attributes = _SLASH.split(text.strip())
    if attributes and not first:
        return ", ".join(map(_quote, attributes))
    if "\\," in text:
        return ", ".join(_quote(part.strip().replace("\\,", ",")) for part in _UNESCAPED_COMMA.split(text))
    return ""


def _quote(attribute: str) -> str:
    kind, _, value = attribute.partition("=")
    doubled = value.replace('"', '""')
    return f'{kind}="{doubled}"' if set(value) & set(',"') else attribute


_PRESETS: Final = Path(__file__).with_name("presets.json")
_ISSUER: Final = re.compile(r"issuer\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
_HEX_AND_SEPARATORS: Final = re.compile(r"[0-9A-Fa-f: ]+")
_THUMBPRINT_LENGTHS: Final = (40, 64)
_KEYS: Final = ("subject", "thumbprint", "issuer")
_LONGEST: Final = 1024
_TEXT: Final = "subject and issuer must be a string such as CN=…, O=…"
_FORMS: Final = 'write CN=…, O="…", or 40 or 64 hexadecimal digits'


class KnownCertificate(Protocol):
    """What a rule looks at: a certificate, or what a lock says about one. SHA-1 and SHA-256 are in capital digits."""

    @property
    def subject(self) -> Name: ...
    @property
    def issuer(self) -> Name: ...
    @property
    def sha1(self) -> str: ...
    @property
    def sha256(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class CertificatePattern:
    """What a certificate must have. Empty parts match everything."""

    attributes: tuple[tuple[str, str], ...] = ()
    thumbprint: str = ""

    def differences(self, certificate: KnownCertificate) -> list[str]:
        """What the certificate has, and should not have. Empty: it matches."""
        differences = [
            _difference(kind, _values(self.attributes, kind), certificate.subject)
            for kind in dict(self.attributes)
            if sorted(_values(self.attributes, kind)) != sorted(certificate.subject.values(kind))
        ]
        found = certificate.sha1 if len(self.thumbprint) == min(_THUMBPRINT_LENGTHS) else certificate.sha256
        if self.thumbprint and self.thumbprint != found:
            differences.append(f"the thumbprint is {found}, not {self.thumbprint}")
        return differences


@dataclasses.dataclass(frozen=True)
class SignerCondition:
    """One way to match: the signer's own certificate, and a CA above it."""

    signer: CertificatePattern = CertificatePattern()
    issuer: CertificatePattern | None = None

    def differences(self, certificate: KnownCertificate, chain: Sequence[KnownCertificate]) -> list[str]:
        """What is different about the certificate or its chain. Empty: both match."""
        differences = self.signer.differences(certificate)
        issuers = [issuer for issuer in chain if issuer != certificate]
        if self.issuer is None or any(not self.issuer.differences(issuer) for issuer in issuers):
            return differences
        if not issuers:
            return [*differences, f'the issuer is "{certificate.issuer}", and its certificate is not known']
        best = min((self.issuer.differences(issuer) for issuer in issuers), key=len)
        return [*differences, f"of the issuer, {', '.join(best)}"]


@dataclasses.dataclass(frozen=True)
class SignerRule:
    """Who may have signed: one of the conditions must match. `text` is the rule as the operator wrote it."""

    text: str
    conditions: tuple[SignerCondition, ...]

    def matches(self, certificate: KnownCertificate, chain: Sequence[KnownCertificate] = ()) -> bool:
        """Whether this certificate, with the verified chain above it, is an allowed signer."""
        return any(not condition.differences(certificate, chain) for condition in self.conditions)


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named set of signers, with the reason and the sources of its content."""

    name: str
    summary: str
    sources: tuple[str, ...]
    conditions: tuple[SignerCondition, ...]


def parse_signer(value: object) -> SignerRule:
    """A rule from the text or the map of a config. A ValueError says what is wrong with it."""
    if isinstance(value, Mapping):
        condition = _from_map(value)
        return SignerRule(_map_text(value), (condition,))
    if not isinstance(value, str):
        raise ValueError(f"a signer must be a string or a map, not {type(value).__name__}")
    text = value.strip()
    if not text or len(text) > _LONGEST:
        raise ValueError("the signer is empty" if not text else f"the signer is longer than {_LONGEST} characters")
    if text in presets():
        return SignerRule(text, presets()[text].conditions)
    if found := _ISSUER.fullmatch(text):
        return SignerRule(text, (SignerCondition(issuer=_pattern(found[1])),))
    others = f", and no preset (known: {', '.join(presets())})"
    return SignerRule(text, (SignerCondition(signer=_pattern(text, others)),))


def nearest(rules: Iterable[SignerRule], certificate: KnownCertificate, chain: Sequence[KnownCertificate] = ()) -> str:
    """The differences to the rule that is nearest. Empty: the certificate matches a rule, or there is no rule."""
    found = [item.differences(certificate, chain) for rule in rules for item in rule.conditions]
    fewest = min(found, key=len, default=[])
    return ", ".join(fewest)


@functools.cache
def presets() -> Mapping[str, Preset]:
    """The presets by their names."""
    content = json.loads(_PRESETS.read_bytes())
    rows = content["presets"]
    return {
        name: Preset(
            name=name,
            summary=row["summary"],
            sources=tuple(content["sources"][key]["from"] for key in row["from"]),
            conditions=tuple(
                _from_map(signer) for part in (name, *row.get("includes", ())) for signer in _signers(rows[part])
            ),
        )
        for name, row in rows.items()
    }


def _signers(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    signers: Sequence[Mapping[str, Any]] = row.get("signers", ())
    return signers


def _from_map(value: Mapping[Any, Any]) -> SignerCondition:
    if unknown := [key for key in value if key not in _KEYS]:
        raise ValueError(f'unknown key "{unknown[0]}" of a signer (known: {", ".join(_KEYS)})')
    if not value:
        raise ValueError(f"the signer is empty: it needs one of the keys {', '.join(_KEYS)}")
    signer = CertificatePattern(
        attributes=_attributes(value["subject"]) if "subject" in value else (),
        thumbprint=_thumbprint(value["thumbprint"]) if "thumbprint" in value else "",
    )
    return SignerCondition(signer, _issuer(value["issuer"]) if "issuer" in value else None)


def _issuer(value: object) -> CertificatePattern:
    if not isinstance(value, str):
        raise ValueError(_TEXT)
    return _pattern(value)


def _pattern(text: str, others: str = "") -> CertificatePattern:
    text = text.strip()
    if "=" in text:
        return CertificatePattern(parse_name(text))
    if _HEX_AND_SEPARATORS.fullmatch(text):
        return CertificatePattern(thumbprint=_thumbprint(text))
    raise ValueError(f'"{text}" is neither a name nor a thumbprint{others}: {_FORMS}')


def _attributes(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, str):
        raise ValueError(_TEXT)
    return parse_name(value)


def _thumbprint(value: object) -> str:
    digits = re.sub("[: ]", "", value) if isinstance(value, str) else ""
    if not re.fullmatch("[0-9A-Fa-f]*", digits) or len(digits) not in _THUMBPRINT_LENGTHS:
        raise ValueError(f'"{value}" is not a thumbprint: it must have 40 (SHA-1) or 64 (SHA-256) hexadecimal digits')
    return digits.upper()


def _map_text(value: Mapping[Any, Any]) -> str:
    """A map as the text that `parse_signer` reads where it can: it is shown in messages."""
    return "; ".join(str(text) if key == "subject" else f"{key}: {text}" for key, text in value.items())


def _values(attributes: tuple[tuple[str, str], ...], kind: str) -> tuple[str, ...]:
    return Name(attributes).values(kind)


def _difference(kind: str, wanted: tuple[str, ...], subject: Name) -> str:
    expected = " and ".join(f'"{value}"' for value in wanted)
    found = " and ".join(f'"{value}"' for value in subject.values(kind))
    return f"{kind} is {found}, not {expected}" if found else f"there is no {kind}, not {expected}"
