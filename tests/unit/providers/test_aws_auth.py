"""Whose credentials our own client has: those that Packer's plugin has with the same config."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import moto
import pytest
from botocore.hooks import HierarchicalEmitter

from imagegen.base.errors import PublishError
from imagegen.providers.aws import client
from imagegen.providers.aws.client import ec2_clients, session_for
from imagegen.providers.aws.faults import explain_errors
from imagegen.providers.aws.settings import AssumeRole, Auth

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAKEYS", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
ROLE = AssumeRole(role_arn="arn:aws:iam::111122223333:role/images", session_name="nightly")
REGION = "eu-west-1"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config").write_text("[profile images]\nregion = us-east-1\n")
    sections = [
        f"[{name}]\naws_access_key_id = AKIA{name.upper()}\naws_secret_access_key = x" for name in ("images", "me")
    ]
    (tmp_path / "credentials").write_text("\n".join(sections))
    return {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }


@pytest.mark.parametrize(
    ("environ", "profile", "expected"),
    [
        (KEYS, None, ("AKIAKEYS", "token")),
        ({**KEYS, "AWS_PROFILE": "me"}, None, ("AKIAKEYS", "token")),
        ({"AWS_PROFILE": "me"}, None, ("AKIAME", None)),
        ({"AWS_PROFILE": "me"}, "images", ("AKIAIMAGES", None)),
        (KEYS, "images", ("AKIAIMAGES", None)),
    ],
    ids=["keys", "keys before a profile of the environment", "profile", "the config's own profile", "before keys"],
)
def test_the_configs_profile_comes_before_the_chain(
    environ: dict[str, str], profile: str | None, expected: tuple[str, str | None], files: dict[str, str]
) -> None:
    session = session_for({**environ, **files}, Auth(profile=profile), REGION)
    credentials = session.get_credentials()
    assert credentials is not None
    assert (credentials.access_key, credentials.token) == expected
    assert session.region_name == REGION


def test_a_role_is_taken_on_when_the_config_names_one() -> None:
    with moto.mock_aws(config={"core": {"mock_credentials": True}}):
        session = session_for(KEYS, Auth(assume_role=ROLE), REGION)
        sts = session.client("sts")
        assert sts.get_caller_identity()["Arn"] == "arn:aws:sts::111122223333:assumed-role/images/nightly"
        sts.close()
        credentials = session.get_credentials()
    assert credentials is not None
    assert credentials.access_key != KEYS["AWS_ACCESS_KEY_ID"]
    assert credentials.token


def test_one_session_serves_every_region(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Session:
        meta = types.SimpleNamespace(
            endpoint_url="https://ec2.invalid",
            events=HierarchicalEmitter(),
            service_model=types.SimpleNamespace(resolved_protocol="ec2"),
        )

        def __init__(self, *asked: object) -> None:
            *facts, deadline = asked
            assert deadline is None
            made.append(tuple(facts))

        def client(self, service: str, *, region_name: str, **_: object) -> Session:
            made.append((service, region_name))
            return self

        def close(self) -> None:
            made.append("closed")

    auth = Auth(assume_role=ROLE)
    monkeypatch.setattr(client, "session_for", Session)
    with ec2_clients(KEYS, auth) as clients:
        assert made == []
        for region in (REGION, "us-east-1", REGION):
            clients(region)
    assert made == [(KEYS, auth, REGION), ("ec2", REGION), ("ec2", "us-east-1"), "closed", "closed"]


def test_a_role_that_is_refused_says_what_to_allow() -> None:
    import botocore.exceptions

    answer: Any = {"Error": {"Code": "AccessDenied", "Message": "not authorized to perform: sts:AssumeRole"}}
    with pytest.raises(PublishError, match="sts:AssumeRole") as raised, explain_errors("publishing", PublishError):
        raise botocore.exceptions.ClientError(answer, "AssumeRole")
    assert "allow sts:AssumeRole" in raised.value.hint
