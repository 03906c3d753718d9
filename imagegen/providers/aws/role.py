"""A role that a session takes on: asked for when first needed, and again before it ends. It is kept nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.providers.aws.endpoint import explained_endpoint
from imagegen.providers.aws.pages import refuse_pages

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
    """Give `core` the credentials of a role that the session `owner` may take on."""
    from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials

    def ask() -> dict[str, str]:
        with explained_endpoint(environ):
            sts = owner.client("sts", **options)
        refuse_pages(sts)
        try:
            answer = sts.assume_role(RoleArn=role.role_arn, RoleSessionName=role.session_name)["Credentials"]
        finally:
            sts.close()
        return {
            "access_key": answer["AccessKeyId"],
            "secret_key": answer["SecretAccessKey"],
            "token": answer["SessionToken"],
            "expiry_time": answer["Expiration"].isoformat(),
        }

    class Role(CredentialProvider):
        METHOD = "assume-role"

        def load(self) -> DeferredRefreshableCredentials:
            return DeferredRefreshableCredentials(refresh_using=ask, method=self.METHOD)

    core.register_component("credential_provider", CredentialResolver([Role()]))
