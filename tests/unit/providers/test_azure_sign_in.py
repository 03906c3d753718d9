"""How Packer's plugin could not sign in, although the SDK could: that is told before anything is made."""

from __future__ import annotations

from typing import Any

import pytest

from imagegen.build.process import build_environment
from imagegen.providers import RunFacts
from imagegen.providers.azure import checks
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import SIGN_IN, WRONG
from imagegen.providers.provider import provider

APPLICATION = {"AZURE_CLIENT_ID": "app", "AZURE_TENANT_ID": "tenant", "AZURE_SUBSCRIPTION_ID": "subscription"}
POD = {"AZURE_FEDERATED_TOKEN_FILE": "/var/run/token"}
GITHUB = {"ACTIONS_ID_TOKEN_REQUEST_URL": "https://x.test", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "a-token"}
PIPELINES = {"SYSTEM_OIDCREQUESTURI": "https://x.test", "SYSTEM_ACCESSTOKEN": "a-token"}


def signed_in(environ: dict[str, str], **auth: Any) -> str:  # noqa: ANN401 - as a config has them
    """What the first of the quick checks says; empty where it gets as far as asking Azure."""
    gallery = {"resource_group": "images", "name": "gal", "definition": "def"}
    settings = Settings.model_validate({"location": "westeurope", "gallery": gallery, "auth": auth})
    [first, *others] = checks.quick_checks(settings, RunFacts(environ, {}, ""))
    assert (first.subject, first.verdict, first.stops, others) == (SIGN_IN, WRONG, True, [])
    return f"{first.message} | {first.hint}"


@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        (POD, ": it cannot use federated tokens (AZURE_FEDERATED_TOKEN_FILE)"),
        (GITHUB, ": it cannot use federated tokens (ACTIONS_ID_TOKEN_REQUEST_URL, ACTIONS_ID_TOKEN_REQUEST_TOKEN)"),
        (PIPELINES, ": it cannot use federated tokens (SYSTEM_OIDCREQUESTURI, SYSTEM_ACCESSTOKEN)"),
        # A certificate, or a user with a password.
        ({}, ""),
    ],
    ids=["pod", "github", "pipelines", "other"],
)
@pytest.mark.parametrize("family", ["AZURE", "ARM"])
def test_a_sign_in_that_packer_cannot_use_is_refused_before_any_request(
    family: str, tokens: dict[str, str], named: str
) -> None:
    application = {name.replace("AZURE", family): value for name, value in APPLICATION.items()}
    assert signed_in({**application, **tokens}) == (
        f"Packer cannot sign in: {family}_TENANT_ID is set, and no client secret{named} | set AZURE_CLIENT_SECRET; or, "
        f"on a machine with a managed identity, run `unset {family}_TENANT_ID`; or run `az login`, and add "
        "`--set targets.azure.auth.method=cli`"
    )


@pytest.mark.parametrize(
    ("environ", "auth"),
    [
        ({**APPLICATION, **GITHUB, "AZURE_CLIENT_SECRET": "s"}, {}),
        ({**APPLICATION, **GITHUB, "ARM_CLIENT_SECRET": "s"}, {}),
        ({**APPLICATION, **GITHUB}, {"method": "cli"}),
        ({**GITHUB, **PIPELINES, "AZURE_SUBSCRIPTION_ID": "subscription"}, {}),
    ],
    ids=["secret", "other-prefix", "cli", "identity"],
)
def test_a_sign_in_that_packer_can_use_is_tried(
    environ: dict[str, str], auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object) -> None:
        raise ConnectionAbortedError

    monkeypatch.setattr(checks, "resource_manager", ask)
    with pytest.raises(ConnectionAbortedError):
        signed_in(environ, **auth)


def test_packer_gets_no_token_that_it_does_not_use() -> None:
    used = {**APPLICATION, "ARM_CLIENT_SECRET": "s", "IDENTITY_HEADER": "h", "AZURE_CONFIG_DIR": "/az"}
    others = {"ARM_OIDC_TOKEN": "t", "AZURE_PASSWORD": "p", "AZURE_CLIENT_CERTIFICATE_PATH": "/cert.pem"}
    environ = {**used, **POD, **GITHUB, **PIPELINES, **others}
    assert build_environment(environ, {}, {}, provider("azure").environment) == used
