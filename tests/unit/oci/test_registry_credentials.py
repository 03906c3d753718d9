"""The credentials of registries: from the environment to the registry that demands them, and to nobody else."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError
from imagegen.base.hosts import HostPolicy
from imagegen.fetch.http import Answer
from imagegen.oci.names import ImageRequest
from imagegen.oci.registry import builder_variable, look_up_image, read_credentials, secret_forms
from imagegen.rehearsal.network.registries import Registries
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = {"registry.example.com": {"username_env": "APP_USER", "password_env": "APP_LOGIN"}}
AUTH = base64.b64encode(b"robot:pass:word").decode()
APP = "registry.example.com/app:1"
REQUEST = ImageRequest(ImageName.parse(APP), (20348,), ("https://mirror.example.com/own",))


def test_credentials_have_the_form_of_basic_authorization() -> None:
    credentials = read_credentials(NAMES, {"APP_USER": "robot", "APP_LOGIN": "pass:word"})
    assert credentials == {"registry.example.com": AUTH}
    assert secret_forms(credentials) == (AUTH, "pass:word")


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({}, "APP_USER and APP_LOGIN must have the credentials of registry.example.com, and are not set"),
        ({"APP_USER": "robot", "APP_LOGIN": ""}, "APP_LOGIN must have the credentials of registry.example.com, and is"),
        (
            {"APP_USER": "ro:bot", "APP_LOGIN": "secret-1"},
            "APP_USER, for registry.example.com, is not valid: a user name has",
        ),
        (
            {"APP_USER": "robot", "APP_LOGIN": "secret-1\n"},
            "APP_LOGIN, for registry.example.com, is not valid: it is not one",
        ),
        ({"APP_USER": "robot", "APP_LOGIN": "secret-1\udcff"}, "APP_LOGIN, for registry.example.com, is not valid"),
    ],
)
def test_credentials_that_cannot_be_right_are_refused_without_showing_them(
    environ: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_credentials(NAMES, environ)
    assert "secret-1" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("for_docker", "hub"), [(False, "docker.io"), (True, "https://index.docker.io/v1/")], ids=["containerd", "docker"]
)
def test_the_builder_gets_a_configuration_of_docker(for_docker: bool, hub: str) -> None:
    variable = builder_variable({"docker.io": "a", "registry.example.com": "b"}, for_docker=for_docker)
    assert json.loads(base64.b64decode(variable)) == {
        "auths": {hub: {"auth": "a"}, "registry.example.com": {"auth": "b"}}
    }
    assert builder_variable({}, for_docker=for_docker) == ""


class Recorder:
    """Registries that note who gets which authorization."""

    def __init__(self, registries: Registries, challenge: str = "") -> None:
        self.sent: set[tuple[str, str]] = set()
        self._registries, self._challenge = registries, challenge

    def ask(self, url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        host = url.split("/")[2]
        self.sent.add((host, authorization.partition(" ")[0]))
        if host == "mirror.example.com":
            return Answer(401, {"www-authenticate": 'Basic realm="mirror"'}, b"")
        if self._challenge and authorization != f"Basic {AUTH}":
            return Answer(401, {"www-authenticate": self._challenge}, b"")
        return self._registries.ask(url, headers, authorization if not self._challenge else "")


def _demanding(auth: str = AUTH) -> Recorder:
    return Recorder(Registries([APP], ["https://mirror.example.com/own"], credentials={"registry.example.com": auth}))


def _look_up(web: Recorder, credentials: str = AUTH, request: ImageRequest = REQUEST) -> None:
    look_up_image(dataclasses.replace(request, mirrors=()), web.ask, credentials)


def test_a_token_is_fetched_with_the_credentials_which_the_registry_itself_does_not_get() -> None:
    web = _demanding()
    _look_up(web)
    # Its address for tokens is at the same host here.
    assert web.sent == {("registry.example.com", scheme) for scheme in ("", "Basic", "Bearer")}


def test_a_registry_may_ask_for_the_credentials_themselves() -> None:
    web = Recorder(Registries([APP]), 'Basic realm="registry"')
    _look_up(web)
    assert web.sent == {("registry.example.com", scheme) for scheme in ("", "Basic")}


def test_a_mirror_gets_no_credentials() -> None:
    web = _demanding()
    with pytest.raises(ConfigError, match=r"mirror\.example\.com/own demands credentials"):
        look_up_image(REQUEST, web.ask, AUTH)
    assert web.sent == {("mirror.example.com", "")}


def test_wrong_credentials_are_refused_by_the_name_of_the_registry() -> None:
    with pytest.raises(ConfigError, match=r"registry\.example\.com refuses the credentials") as refused:
        _look_up(_demanding("another"))
    assert "registry_credentials" in refused.value.hint


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (HostPolicy.of(["registry.example.com"], []), "not an allowed host"),
        (HostPolicy.of([], ["tokens.example.com"]), "a denied host"),
    ],
)
def test_a_host_for_tokens_that_is_not_allowed_gets_no_credentials(hosts: HostPolicy, says: str) -> None:
    web = Recorder(Registries([APP]), 'Bearer realm="https://tokens.example.com/"')
    request = dataclasses.replace(REQUEST, hosts=hosts)
    with pytest.raises(ConfigError, match=says):
        _look_up(web, AUTH, request)
    assert web.sent == {("registry.example.com", "")}
