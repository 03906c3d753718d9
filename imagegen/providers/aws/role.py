"""Credentials of an assumed role: requested when first needed, and renewed before they expire. Never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.providers.aws.endpoint import explain_endpoint_error
from imagegen.providers.aws.pages import reject_web_pages

if TYPE_CHECKING:
    from collections.abc import Mapping

    import boto3
    import botocore.session

    from imagegen.providers.aws.client import ClientOptions
    from imagegen.providers.aws.settings import AssumeRole


def assume_role(
    core: botocore.session.Session,
    owner: boto3.Session,
    role: AssumeRole,
    environ: Mapping[str, str],
    options: ClientOptions,
) -> None:
    """Give `core` the credentials of a role that the session `owner` can assume."""
    from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials

    def request_credentials() -> dict[str, str]:
        with explain_endpoint_error(environ):
            sts = owner.client("sts", **options)
        reject_web_pages(sts)
        try:
            credentials = sts.assume_role(RoleArn=role.role_arn, RoleSessionName=role.session_name)["Credentials"]
        finally:
            sts.close()
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }

    class Role(CredentialProvider):
        METHOD = "assume-role"

        def load(self) -> DeferredRefreshableCredentials:
            return DeferredRefreshableCredentials(refresh_using=request_credentials, method=self.METHOD)

    core.register_component("credential_provider", CredentialResolver([Role()]))
