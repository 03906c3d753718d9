from __future__ import annotations

import pytest

from imagegen.build.process import (
    build_environment,
    go_environment,
    packer_probe_environment,
    pip_environment,
    secret_values,
)
from imagegen.providers.provider import provider

_ENVIRON = {
    "HOME": "/home/me",
    "PATH": "/usr/bin",
    "https_proxy": "http://p:1",
    "SSL_CERT_FILE": "/ca.pem",
    "AWS_PROFILE": "images",
    "ARM_CLIENT_SECRET": "arm-secret-value",
    "GOPROXY": "off",
    "GOWORK": "/home/me/go.work",
    "PACKER_LOG": "1",
    "PACKER_PLUGIN_PATH": "/plugins",
    "PKR_VAR_region": "elsewhere",
    "EDITOR": "vi",
}
_COMMON = {"HOME": "/home/me", "PATH": "/usr/bin", "https_proxy": "http://p:1", "SSL_CERT_FILE": "/ca.pem"}


def test_a_build_sees_its_own_clouds_credentials_and_its_own_variables_only() -> None:
    tools = {"PACKER_PLUGIN_PATH": "/ours"}
    names = frozenset({"ARM_*", "OF_THE_CONFIG"})
    assert build_environment({**_ENVIRON, "OF_THE_CONFIG": "x"}, tools, {"region": "here"}, names) == {
        **_COMMON,
        "ARM_CLIENT_SECRET": "arm-secret-value",
        "OF_THE_CONFIG": "x",
        "PACKER_PLUGIN_PATH": "/ours",
        "PKR_VAR_region": "here",
    }


@pytest.mark.parametrize(
    ("cloud", "own"),
    [
        ("aws", {"AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_AUTHORIZATION_TOKEN"}),
        ("azure", {"ARM_CLIENT_SECRET", "AZURE_CLIENT_SECRET", "MSI_SECRET"}),
    ],
)
def test_a_cloud_names_its_credentials_and_no_others(cloud: str, own: set[str]) -> None:
    every = {
        *("AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "GITHUB_TOKEN"),
        *("ARM_CLIENT_SECRET", "AZURE_CLIENT_SECRET", "MSI_SECRET", "SYSTEM_ACCESSTOKEN"),
    }
    names = provider(cloud).environment
    assert build_environment(dict.fromkeys(every, "x"), {}, {}, names).keys() == own


def test_go_sees_no_credentials_and_no_workspace() -> None:
    assert go_environment(_ENVIRON) == {**_COMMON, "GOPROXY": "off", "GOWORK": "off"}


def test_pip_sees_the_users_indexes_and_no_setting_that_contradicts_a_folder_of_ours() -> None:
    own = {"PIP_INDEX_URL": "https://mirror.example/simple", "PIP_RETRIES": "7"}
    ours = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    expected = {**_COMMON, **own, **ours, "PIP_DEFAULT_TIMEOUT": "10"}
    assert pip_environment({**_ENVIRON, **own, "PIP_USER": "1", "PIP_REQUIRE_VIRTUALENV": "1"}) == expected


def test_a_probe_sees_the_users_own_packer_settings() -> None:
    expected = {**_COMMON, "PACKER_PLUGIN_PATH": "/plugins", "CHECKPOINT_DISABLE": "1"}
    assert packer_probe_environment(_ENVIRON) == expected


def test_secrets_are_known_by_their_names_longest_first() -> None:
    environ = {
        **_ENVIRON,
        "AWS_SECRET_ACCESS_KEY": "key-0123456789-and-more",
        "AWS_SESSION_TOKEN": "key-0123456789",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token-file",
        "DB_PASSWORD": "short",
    }
    assert secret_values(environ) == ("key-0123456789-and-more", "arm-secret-value", "key-0123456789")
