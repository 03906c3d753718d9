"""Whatever a document says, it verifies or is refused: nothing else happens, and a signed document never changes."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attest_support import Proof, check

# Each with a meaning of its own for some reader: nothing, other types, texts that look like others, many levels.
_NESTED: Any = []
for _ in range(300):
    _NESTED = [_NESTED]
VALUES: Final[list[Any]] = [
    *(None, True, -1, 0.5, 10**30, "", "x" * 5000, "\u2028", "\ud800", "../../etc", "::error::", "%00", "0" * 64),
    *([], [None], {}, {"": None}, {"name": "a"}, _NESTED),
]
DOCUMENTS: Final = ("manifest", "attestation", "sbom", "node")


def path_of(proof: Proof, document: str) -> Path:
    return {
        "manifest": proof.manifest,
        "attestation": proof.files.attestation,
        "sbom": proof.files.sbom,
        "node": proof.node,
    }[document]


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:  # noqa: ANN401 - JSON
    if not path:
        return new
    found = changed = copy.deepcopy(value)
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = new
    return changed


@pytest.mark.parametrize("document", DOCUMENTS)
@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_any_value_anywhere_verifies_or_is_refused(document: str, made: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proof = Proof(Path(shutil.copytree(made, folder, dirs_exist_ok=True)))
        path = path_of(proof, document)
        text = path.read_text().rpartition("imagegen-check: ")[2]
        value = json.loads(text)
        place = data.draw(st.sampled_from(places(value)))
        path.write_text(json.dumps(replaced(value, place, data.draw(st.sampled_from(VALUES)))))
        checks = check(proof, node=proof.node)
        failed = {name for name, one in checks.items() if one.status == "failed"}
        assert all(checks[name].problems for name in failed)
        # The name of the key is the only value that nobody has signed.
        has_changed = json.loads(path.read_text()) != value and "keyid" not in place
        if document in ("manifest", "attestation", "sbom") and has_changed:
            assert failed


@pytest.mark.parametrize("document", DOCUMENTS)
@settings(max_examples=40, deadline=None, database=None)
@given(data=st.data())
def test_any_bytes_anywhere_verify_or_are_refused(document: str, made: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proof = Proof(Path(shutil.copytree(made, folder, dirs_exist_ok=True)))
        path = path_of(proof, document)
        before = path.read_bytes()
        at = data.draw(st.integers(0, len(before)))
        path.write_bytes(before[:at] + data.draw(st.binary(max_size=8)) + before[at + data.draw(st.integers(0, 9)) :])
        failed = {name for name, one in check(proof, node=proof.node).items() if one.status == "failed"}
        if document in ("manifest", "sbom") and path.read_bytes() != before:
            assert failed
