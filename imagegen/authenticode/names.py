"""The short types of the attributes of a distinguished name, as Windows shows them, and the text form of names."""

import re
from typing import Final

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
