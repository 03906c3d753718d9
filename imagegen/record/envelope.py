"""Envelopes of DSSE, which hold a statement and its signatures, and Sigstore's bundles around them. Pure.

https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md and
https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from typing import Annotated, Final, Literal

import pydantic
from pydantic.alias_generators import to_camel
from securesystemslib import dsse

from imagegen.base.errors import Problem
from imagegen.record.keys import SigningKey, VerifyingKey
from imagegen.record.manifest import Json
from imagegen.record.reading import ATTEST_AGAIN, InvalidDocument, parse_json, parse_model
from imagegen.record.statement import Statement, statement_bytes
from imagegen.steps.resource import Strict

LIMIT_BYTES: Final = 16 * 2**20
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


class Signature(Strict):
    """One signature. The `keyid` is only a hint: nobody has signed it."""

    keyid: Annotated[str, pydantic.StringConstraints(max_length=1024)] = ""
    sig: Annotated[str, pydantic.StringConstraints(max_length=8192)]


class Envelope(Strict):
    """An envelope of DSSE."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)

    payload: str
    payload_type: Literal["application/vnd.in-toto+json"]
    signatures: Annotated[list[Signature], pydantic.Field(min_length=1, max_length=16)]


class Bundle(Strict):
    """Sigstore's bundle, as cosign writes it: an envelope, and what proves whose signature it is."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)

    media_type: Annotated[str, pydantic.StringConstraints(pattern=r"^application/vnd\.dev\.sigstore\.bundle")]
    verification_material: Json
    dsse_envelope: Envelope

    @property
    def is_keyless(self) -> bool:
        """Whether a certificate of Sigstore says who signed, instead of a key."""
        return bool({"certificate", "x509CertificateChain"} & self.verification_material.keys())


@dataclasses.dataclass(frozen=True)
class Attestation:
    """A statement as a file has it. Without an envelope it is not signed. It is read after its signature is checked."""

    shown_as: str
    payload: bytes
    envelope: Envelope | None = None
    is_keyless: bool = False

    def read_statement(self) -> Statement:
        """The statement. Anything else in its place is an InvalidDocument."""
        place = f"{self.shown_as}: payload" if self.envelope else self.shown_as
        return parse_model(parse_json(self.payload, place, ATTEST_AGAIN), Statement, place, ATTEST_AGAIN)

    def is_signed_by(self, key: VerifyingKey) -> bool:
        """Whether one of the signatures is by this key. Whatever the others are, nobody else could have made it."""
        signatures = self.envelope.signatures if self.envelope else []
        signed = _signed_bytes(self.payload)
        return any(key.has_signed(signed, data) for one in signatures if (data := _decode(one.sig)) is not None)

    @property
    def key_ids(self) -> list[str]:
        """The keys that the signatures name."""
        return [one.keyid for one in self.envelope.signatures if one.keyid] if self.envelope else []


def sign(statement: Statement, key: SigningKey) -> bytes:
    """An envelope with the statement and one signature."""
    payload = statement_bytes(statement)
    signature = Signature(keyid=key.public.id, sig=base64.b64encode(key.sign(_signed_bytes(payload))).decode())
    envelope = Envelope(payload=base64.b64encode(payload).decode(), payload_type=PAYLOAD_TYPE, signatures=[signature])
    return json.dumps(envelope.model_dump(mode="json", by_alias=True), indent=2, sort_keys=True).encode() + b"\n"


def read_attestation(data: bytes, shown_as: str) -> Attestation:
    """An attestation: a bundle, an envelope, or else a statement. What is not JSON is an InvalidDocument."""
    value = parse_json(data, shown_as, ATTEST_AGAIN)
    keys = value.keys() if isinstance(value, dict) else set()
    if "dsseEnvelope" in keys:
        bundle = parse_model(value, Bundle, shown_as, ATTEST_AGAIN)
        return _opened(bundle.dsse_envelope, shown_as, is_keyless=bundle.is_keyless)
    if "payload" in keys:
        return _opened(parse_model(value, Envelope, shown_as, ATTEST_AGAIN), shown_as, is_keyless=False)
    return Attestation(shown_as, data)


def _opened(envelope: Envelope, shown_as: str, *, is_keyless: bool) -> Attestation:
    payload = _decode(envelope.payload)
    if payload is None:
        raise InvalidDocument([Problem(shown_as, 0, "payload", "is not valid base64", ATTEST_AGAIN)])
    return Attestation(shown_as, payload, envelope, is_keyless)


def _signed_bytes(payload: bytes) -> bytes:
    """What a signature is made of: type and payload, each after its length."""
    return dsse.Envelope(payload, PAYLOAD_TYPE, {}).pae()


def _decode(text: str) -> bytes | None:
    """The bytes of base64, in either of its alphabets. None if the text is not valid."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None
