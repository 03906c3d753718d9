"""The operator's rules about who may have signed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from imagegen.authenticode.model import Certificate, Name
from imagegen.authenticode.signer import nearest, parse_name, parse_signer, presets
from tests.authenticode.pki import make_ca, make_root, make_signer, pki

SIGNER = pki().signer.read
CHAIN = tuple(identity.read for identity in pki().signer.chain)
COMMA = make_signer(pki().ca, 'C=US, OU=One, OU=Two, O=Example "Software" Inc, CN=Example Inc').read


def _matches(value: object, certificate: Certificate = SIGNER, chain: tuple[Certificate, ...] = CHAIN) -> bool:
    return parse_signer(value).matches(certificate, chain)


MATCHING: list[object] = [
    *(
        "CN=Example Inc",
        "O=Example Inc",
        "C=US",
        "CN=Example Inc, O=Example Inc",
        "O=Example Inc, CN=Example Inc, C=US",
    ),
    *('CN="Example Inc"', "cn=Example Inc", "commonName=Example Inc", "2.5.4.3=Example Inc", "OID.2.5.4.3=Example Inc"),
    *("  CN = Example Inc ,O=Example Inc  ", SIGNER.sha1, SIGNER.sha256, SIGNER.sha1.lower()),
    *(":".join(SIGNER.sha1[at : at + 2] for at in range(0, 40, 2)), f" {SIGNER.sha256[:32]} {SIGNER.sha256[32:]} "),
    *("issuer: CN=Example Code CA", "issuer:O=Example", "Issuer: CN=Example Root", f"issuer: {pki().root.read.sha256}"),
    {"subject": "CN=Example Inc"},
    {"subject": "CN=Example Inc, O=Example Inc"},
    {"thumbprint": SIGNER.sha1},
    {"issuer": "CN=Example Root"},
    {"issuer": "CN=Example Code CA"},
    {"issuer": pki().ca.read.sha1},
    {"subject": "O=Example Inc", "issuer": "CN=Example Root", "thumbprint": SIGNER.sha256},
]
OTHERS: list[object] = [
    *("CN=Example", "CN=Example Inc.", "CN=example inc", "CN=Example Inc, O=Other", "O=Example", "OU=Example Inc"),
    *("0" * 40, "0" * 64, pki().ca.read.sha1, "issuer: CN=Example Inc", "issuer: CN=Example", f"issuer: {SIGNER.sha1}"),
    *("microsoft", "kubernetes"),
    {"subject": "CN=Example Inc", "issuer": "CN=Other Root"},
    {"subject": "CN=Other", "thumbprint": SIGNER.sha1},
    {"subject": "CN=Example Inc, CN=Example Inc"},
]


@pytest.mark.parametrize("value", MATCHING, ids=range(len(MATCHING)))
def test_matches(value: object) -> None:
    assert _matches(value)


@pytest.mark.parametrize("value", OTHERS, ids=range(len(OTHERS)))
def test_does_not_match(value: object) -> None:
    assert not _matches(value)


@pytest.mark.parametrize(
    ("value", "matches"),
    [
        ("OU=One, OU=Two", True),
        ("OU=Two, OU=One, CN=Example Inc", True),
        ("OU=One", False),
        ("OU=One, OU=Two, OU=Three", False),
        ({"subject": "OU=Two, OU=One"}, True),
        ({"subject": "OU=One"}, False),
        ('O="Example ""Software"" Inc"', True),
    ],
)
def test_all_values_of_a_type_must_be_given(value: object, matches: bool) -> None:
    """A certificate with a second name of a type that is given is another one."""
    assert _matches(value, COMMA) is matches


def test_an_issuer_counts_only_above_the_signer() -> None:
    root = make_root("O=Example, CN=Alone")
    assert not _matches("issuer: CN=Alone", root.read, (root.read,))
    assert not _matches("issuer: CN=Example Code CA", chain=())


def test_a_name_with_a_comma_is_quoted_as_windows_does() -> None:
    (condition,) = parse_signer('CN=Microsoft Corporation, O="Microsoft Corporation, Inc."').conditions
    assert condition.signer.attributes == (("CN", "Microsoft Corporation"), ("O", "Microsoft Corporation, Inc."))
    name = Name(condition.signer.attributes)
    assert str(name) == 'CN=Microsoft Corporation, O="Microsoft Corporation, Inc."'
    assert parse_name(str(name)) == name.attributes


def test_the_text_of_a_name_can_be_read_again() -> None:
    assert parse_name(str(COMMA.subject)) == COMMA.subject.attributes
    odd = (("CN", ' a="b", c '), ("O", "x\\y;z+<>"), ("2.5.4.15", "Private Organization"))
    assert parse_name(str(Name(odd))) == odd


INVALID: list[tuple[object, str]] = [
    ("", "the signer is empty"),
    ("x" * 1025, "the signer is longer than 1024 characters"),
    (5, "a signer must be a string or a map, not int"),
    (None, "a signer must be a string or a map, not NoneType"),
    (
        "Microsoft",
        '"Microsoft" is neither a name nor a thumbprint, and no preset (known: microsoft, kubernetes): write',
    ),
    ("CN=", "CN has no value"),
    ("CN=a,", "there is nothing after the last comma"),
    ("CN=a b=c, O", '"O" is not of the form CN=…, O="…"'),
    ("CN=A; O=B", 'between attributes: write "," in its place, or CN="A; O=B" if it is part of the value'),
    ("C=US, CN=A+O=B", '"CN=A+O=B" has "+" between attributes'),
    ('CN="a', 'is not of the form CN=…, O="…"'),
    ('CN="a"b', 'is not of the form CN=…, O="…"'),
    ("XY=a", 'unknown attribute "XY" (known: CN,'),
    ("AB" * 10, "must have 40 (SHA-1) or 64 (SHA-256) hexadecimal digits"),
    ("issuer:", '"" is neither a name nor a thumbprint: write'),
    ({}, "the signer is empty: it needs one of the keys subject, thumbprint, issuer"),
    ({"name": "x"}, 'unknown key "name" of a signer (known: subject, thumbprint, issuer)'),
    ({"subject": 5}, "subject and issuer must be a string such as CN=…, O=…"),
    ({"subject": {"CN": "x"}}, "subject and issuer must be a string such as CN=…, O=…"),
    (
        "/C=US/O=Example, Inc/CN=Example A/B",
        '"/C=US/O=Example, Inc/CN=Example A/B" is in the form of OpenSSL: write C=US, O="Example, Inc", CN=Example A/B',
    ),
    (r"O=Example\, Inc., C=US", r'"O=Example\, Inc., C=US" is in the form of OpenSSL: write O="Example, Inc.", C=US'),
    (r'CN="a" \, b', r'is in the form of OpenSSL: write CN="""a"" , b"'),
    ({"thumbprint": 5}, '"5" is not a thumbprint'),
    ({"issuer": 5}, "subject and issuer must be a string such as"),
    ({"issuer": "microsoft"}, '"microsoft" is neither a name nor a thumbprint: write CN='),
]


@pytest.mark.parametrize(("value", "message"), INVALID, ids=[message for _, message in INVALID])
def test_what_is_wrong_with_a_rule_is_told(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_signer(value)


NEAREST: list[tuple[list[object], str]] = [
    ([], ""),
    (["CN=Example Inc"], ""),
    (["O=Foo", "CN=Example Inc"], ""),
    (["O=Foo"], 'O is "Example Inc", not "Foo"'),
    (["CN=Foo, O=Bar", "CN=Example Inc, O=Foo"], 'O is "Example Inc", not "Foo"'),
    (["OU=Foo"], 'there is no OU, not "Foo"'),
    (["0" * 40], f"the thumbprint is {SIGNER.sha1}, not {'0' * 40}"),
    (["0" * 64], f"the thumbprint is {SIGNER.sha256}, not {'0' * 64}"),
    (["issuer: CN=Foo"], 'of the issuer, CN is "Example Code CA", not "Foo"'),
    ([{"subject": "CN=Foo", "issuer": "CN=Example Root"}], 'CN is "Example Inc", not "Foo"'),
]


@pytest.mark.parametrize(("rules", "text"), NEAREST, ids=range(len(NEAREST)))
def test_the_nearest_rule_is_told(rules: list[object], text: str) -> None:
    assert nearest([parse_signer(rule) for rule in rules], SIGNER, CHAIN) == text


def test_an_issuer_without_a_certificate_is_told() -> None:
    expected = 'the issuer is "CN=Example Code CA, O=Example", and its certificate is not known'
    assert nearest([parse_signer("issuer: CN=Foo")], SIGNER) == expected


@pytest.mark.parametrize("value", [*MATCHING, *OTHERS], ids=range(len(MATCHING + OTHERS)))
def test_the_text_of_a_rule_is_short(value: object) -> None:
    text = parse_signer(value).text
    assert text == (str(value).strip() if isinstance(value, str) else text)
    assert "{" not in text


def _presets() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("imagegen/authenticode/presets.json").read_bytes())
    return found


def test_presets_have_sources() -> None:
    content = _presets()
    assert set(content["presets"]) == set(presets()) == {"microsoft", "kubernetes"}
    for name, preset in presets().items():
        assert preset.sources, name
        assert preset.conditions, name
    used = {source for row in content["presets"].values() for source in row["from"]}
    assert used == set(content["sources"])
    assert all(set(row) == {"from", "read"} for row in content["sources"].values())


def test_the_preset_of_microsoft_needs_its_name_and_its_root() -> None:
    """A CA that anybody can buy from may not issue for it, and its own CAs sign for others too."""
    root = make_root("O=Public, CN=Public Root")
    ca = make_ca(root, "O=Microsoft Corporation, CN=Microsoft Code Signing PCA 2011")
    signer = make_signer(ca, "O=Microsoft Corporation, CN=Microsoft Corporation")
    chain = tuple(identity.read for identity in signer.chain)
    rule = parse_signer("microsoft")
    assert not rule.matches(signer.read, chain)
    assert nearest([rule], signer.read, chain).startswith("of the issuer, the thumbprint is ")
