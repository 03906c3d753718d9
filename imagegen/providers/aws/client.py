"""EC2 clients for a run's credentials, and what their errors mean for an operator."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from botocore.exceptions import ClientError
    from botocore.loaders import Loader
    from mypy_boto3_ec2.client import EC2Client

    from imagegen.errors import ImagegenError

    Clients = Callable[[str], EC2Client]

ATTEMPTS = 6
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60

_WHO = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_MAY_NOT = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_CREDENTIALS_HINT = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), "
    "or run where a role is given"
)
# A region that an account has not enabled answers as if the credentials were wrong.
_NOT_ACCEPTED_HINT = f"{_CREDENTIALS_HINT}; and check that the account has enabled the region"


@contextlib.contextmanager
def ec2_clients(environ: Mapping[str, str]) -> Iterator[Clients]:
    """A client per region, made when first asked for and closed at the end."""
    clients: dict[str, EC2Client] = {}

    def client(region: str) -> EC2Client:
        if region not in clients:
            clients[region] = _ec2(region, environ)
        return clients[region]

    try:
        yield client
    finally:
        for made in clients.values():
            made.close()


@functools.cache
def _service_models() -> Loader:
    """EC2's description is megabytes of JSON: read once, not once for each region."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def _ec2(region: str, environ: Mapping[str, str]) -> EC2Client:
    import boto3
    import botocore.config
    import botocore.session

    core = botocore.session.get_session()
    core.register_component("data_loader", _service_models())

    # Without keys or a profile, botocore goes through its own chain (web identity, containers, instance roles), which
    # reads the process's environment, as it does for proxies: there is no way to hand it one.
    if environ.get("AWS_ACCESS_KEY_ID"):
        session = boto3.session.Session(
            aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environ.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=environ.get("AWS_SESSION_TOKEN") or None,
            region_name=region,
            botocore_session=core,
        )
    else:
        profile = environ.get("AWS_PROFILE") or None
        session = boto3.session.Session(profile_name=profile, region_name=region, botocore_session=core)
    return session.client(
        "ec2",
        config=botocore.config.Config(
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
        ),
        verify=environ.get("AWS_CA_BUNDLE") or None,
    )


@contextlib.contextmanager
def explained(doing: str, failure: type[ImagegenError]) -> Iterator[None]:
    """Errors of the SDK as errors to act on: `failure`, or ConfigError where the credentials are at fault."""
    import botocore.exceptions as sdk

    try:
        yield
    except sdk.ClientError as error:
        raise _from_answer(doing, error, failure) from error
    except (
        sdk.NoCredentialsError,
        sdk.PartialCredentialsError,
        sdk.CredentialRetrievalError,
        sdk.ProfileNotFound,
        sdk.SSOError,
        sdk.TokenRetrievalError,
    ) as error:
        raise ConfigError(f"{doing}: no usable AWS credentials: {error}", hint=_CREDENTIALS_HINT) from error
    except sdk.BotoCoreError as error:
        raise failure(f"{doing}: {error}", hint="check the network and the region, and run it again") from error


def _from_answer(doing: str, error: ClientError, failure: type[ImagegenError]) -> ImagegenError:
    told = error.response.get("Error", {})
    code, message = told.get("Code", "unknown"), told.get("Message", "")
    details = (f"request id: {error.response.get('ResponseMetadata', {}).get('RequestId', 'unknown')}",)
    if code in _WHO:
        return ConfigError(
            f"{doing}: AWS does not accept the credentials: {code}", hint=_NOT_ACCEPTED_HINT, details=details
        )
    # What follows is an encoded blob of kilobytes.
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code in _MAY_NOT:
        hint = f"allow ec2:{error.operation_name} for these credentials, and run it again"
    else:
        hint = "run it again when the reason is gone"
    return failure(f"{doing}: {code}: {reason}", hint=hint, details=details)
