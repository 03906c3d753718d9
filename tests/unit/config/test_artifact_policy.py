"""What people write for signers and signed scripts by mistake, and what they are told to write."""

from __future__ import annotations

import pydantic
import pytest

from imagegen.base.errors import InvalidValue
from imagegen.config.artifact_policy import Signatures

OWN_SCRIPTS = "write {from: DIR}, the folder with your signed scripts"
MISTAKES: list[tuple[str, object, str, str]] = [
    ("signers", "microsoft", "must be a list, not a string", 'write ["microsoft"]'),
    ("signers", [["CN=Example"]], "must be a string or a map, not a list", 'write "CN=Example"'),
    (
        "signers",
        [["CN=A", "CN=B"]],
        "must be a string or a map, not a list",
        'write "CN=…, O=…", or {subject: "CN=…"}',
    ),
    (
        "signers",
        ["CN=Exam\u200bple"],
        "the signer has the character U+200B, which is invisible",
        "remove it, or use a thumbprint",
    ),
    (
        "signers",
        [{"issuer": "CN=A\u00a0B"}],
        "the signer has the character U+00A0, which is invisible",
        "remove it, or use a thumbprint",
    ),
    ("own_scripts", {}, 'the key "from" is required', OWN_SCRIPTS),
    ("own_scripts", {"form": "signed"}, 'unknown key "form"', OWN_SCRIPTS),
    ("own_scripts", {"from": "signed", "to": "x"}, 'unknown key "to"', OWN_SCRIPTS),
    ("own_scripts", "signed", "must be a map, not a string", 'write {from: "signed"}'),
]


@pytest.mark.parametrize(("key", "value", "message", "hint"), MISTAKES)
def test_a_mistake_is_told_with_what_to_write(key: str, value: object, message: str, hint: str) -> None:
    with pytest.raises(pydantic.ValidationError) as raised:
        Signatures.model_validate({key: value})
    (item,) = raised.value.errors(include_url=False)
    error = item["ctx"]["error"]
    assert isinstance(error, InvalidValue)
    assert (str(error), error.hint) == (message, hint)


def test_a_signer_has_letters_of_every_alphabet() -> None:
    signers = ["CN=Müller GmbH, O=東京", {"subject": "O=Ångström", "issuer": "CN=Čepel CA"}]
    assert Signatures.model_validate({"signers": signers}).model_dump(exclude_none=True)["signers"] == signers
