"""Creates clients of AWS' services with the credentials of a run, and explains their errors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

from imagegen.errors import ConfigError, ImagegenError, PublishError
from imagegen.providers.aws.endpoint import explain_endpoint_error
from imagegen.providers.aws.faults import error_code, is_unknown_host
from imagegen.providers.aws.pages import PageError, reject_web_pages
from imagegen.providers.aws.settings import AssumeRole, Auth
from imagegen.providers.deadline import CONNECT_S, READ_S, RETRIES, Deadline

if TYPE_CHECKING:
    import boto3
    import botocore.config
    import botocore.session
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError
    from botocore.loaders import Loader
    from mypy_boto3_ec2.client import EC2Client
# Quoted: the types of AWS' services are there only for the type checker.
Clients = Callable[[str], "EC2Client"]
ServiceClients = Callable[[str, str], Any]


class ClientOptions(TypedDict):
    """The options of every client."""

    config: botocore.config.Config
    verify: str | None


ATTEMPTS = 6
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60

_REJECTED = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_EXPIRED = frozenset({"ExpiredToken", "RequestExpired"})
_FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_CREDENTIALS_HINT = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), "
    "or run where AWS provides a role"
)
# The error of a region that the account has not enabled; some regions reject the credentials instead.
_NOT_ENABLED = "OptInRequired"
_NOT_ACCEPTED_HINT = f"{_CREDENTIALS_HINT}; and check that the account has enabled the region"


@contextlib.contextmanager
def ec2_clients(environ: Mapping[str, str], auth: Auth) -> Iterator[Clients]:
    """Yield a function that returns the EC2 client of a region."""
    with service_clients(environ, auth) as clients:
        yield lambda region: clients("ec2", region)


@contextlib.contextmanager
def service_clients(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> Iterator[ServiceClients]:
    """Yield a function that returns the client of a service in a region, and close all clients at the end.

    After the deadline no request is sent; before it, a failed request is retried once.
    """
    options = _client_options(environ, deadline)
    clients: dict[tuple[str, str], Any] = {}
    session: boto3.Session | None = None

    def client(service: str, region: str) -> Any:  # noqa: ANN401 - each service has a class of its own
        # Created late, so that its errors are explained where the first client is needed.
        nonlocal session
        session = session or session_for(environ, auth, region, options)
        if (service, region) not in clients:
            # The stubs accept only literal names of services.
            with explain_endpoint_error(environ):
                new: Any = session.client(cast("Any", service), region_name=region, **options)
            clients[service, region] = new
            if deadline is not None:
                _enforce(deadline, new)
            reject_web_pages(new)
        return clients[service, region]

    try:
        yield client
    finally:
        for opened in clients.values():
            opened.close()


@functools.cache
def _service_models() -> Loader:
    """The loader that all sessions share, because EC2's service model has megabytes of JSON."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def session_for(
    environ: Mapping[str, str], auth: Auth, region: str, options: ClientOptions | None = None
) -> boto3.Session:
    """A session with the same credentials as Packer's plugin: profile or credential chain, then the role, if any."""
    owner = _chain(environ, auth.profile, region)
    if auth.assume_role is None:
        return owner
    import boto3

    core = _core(environ)
    _assume_role(core, owner, auth.assume_role, environ, options or _client_options(environ))
    return boto3.Session(region_name=region, botocore_session=core)


def _assume_role(
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


def _chain(environ: Mapping[str, str], profile: str | None, region: str) -> boto3.Session:
    import boto3

    core = _core(environ)
    # Without keys or a profile, botocore uses its own chain (web identity, containers, instance roles), which reads the
    # environment of the process, and so do its proxies: it accepts no other environment.
    if environ.get("AWS_ACCESS_KEY_ID") and profile is None:
        return boto3.Session(
            aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environ.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=environ.get("AWS_SESSION_TOKEN") or None,
            region_name=region,
            botocore_session=core,
        )
    return boto3.Session(
        profile_name=profile or environ.get("AWS_PROFILE") or None, region_name=region, botocore_session=core
    )


def _core(environ: Mapping[str, str]) -> botocore.session.Session:
    import botocore.session

    core = botocore.session.get_session()
    core.register_component("data_loader", _service_models())
    for variable, name in (("config_file", "AWS_CONFIG_FILE"), ("credentials_file", "AWS_SHARED_CREDENTIALS_FILE")):
        if name in environ:
            core.set_config_variable(variable, environ[name])
    return core


def _enforce(deadline: Deadline, client: BaseClient) -> None:
    import botocore.exceptions as sdk

    class DeadlineError(sdk.BotoCoreError):
        """Not an error of the network, because botocore would retry that."""

        fmt = "the limit of {limit_s:g} seconds has passed"

    def check(**_: object) -> None:
        if not deadline.left_s:
            raise DeadlineError(limit_s=deadline.limit_s)

    client.meta.events.register("before-send", check)


def _client_options(environ: Mapping[str, str], deadline: Deadline | None = None) -> ClientOptions:
    import botocore.config

    connect_s, read_s = (CONNECT_S, READ_S) if deadline else (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    return {
        "config": botocore.config.Config(
            retries={"mode": "standard", "total_max_attempts": RETRIES + 1 if deadline else ATTEMPTS},
            connect_timeout=connect_s,
            read_timeout=read_s,
        ),
        "verify": environ.get("AWS_CA_BUNDLE") or None,
    }


@contextlib.contextmanager
def explain_errors(
    doing: str, failure: type[ImagegenError], *, copied_to: str = "", service: str = "ec2"
) -> Iterator[None]:
    """Turn errors of the SDK into `failure` with a hint, or into ConfigError where the credentials are invalid.

    A PublishError stays one, because credentials that publish an image were valid before. `copied_to` is the region of
    a copy, which the account may not have enabled; `service` is the name of the service in permissions.
    """
    import botocore.exceptions as sdk
    from botocore.parsers import ResponseParserError

    unusable = failure if issubclass(failure, PublishError) else ConfigError
    try:
        yield
    except sdk.ClientError as error:
        raise _from_answer(doing, error, failure, unusable, copied_to, service) from error
    except (
        sdk.NoCredentialsError,
        sdk.PartialCredentialsError,
        sdk.CredentialRetrievalError,
        sdk.ProfileNotFound,
        sdk.SSOError,
        sdk.TokenRetrievalError,
    ) as error:
        raise unusable(f"{doing}: no usable AWS credentials: {error}", hint=_CREDENTIALS_HINT) from error
    except sdk.BotoCoreError as error:
        hint = "check the network and the region, then run it again"
        if copied_to and is_unknown_host(error):
            hint = f"check that AWS has a region {copied_to}, {_without(copied_to)}"
        raise failure(f"{doing}: {error}", hint=hint, details=_notes(error)) from error
    except PageError as error:
        hint = f"allow access to {error.host}, or set HTTPS_PROXY to a proxy that allows it; then run it again"
        raise failure(f"{doing}: {error}", hint=hint) from error
    except ResponseParserError as error:
        message = f"{doing}: the answer is truncated or not from AWS: {str(error).partition(chr(10))[0]}"
        raise failure(message, hint="run it again") from error


def _from_answer(
    doing: str,
    error: ClientError,
    failure: type[ImagegenError],
    unusable: type[ImagegenError],
    copied_to: str,
    service: str,
) -> ImagegenError:
    code, message = error_code(error), error.response.get("Error", {}).get("Message", "")
    details = (f"request id: {error.response.get('ResponseMetadata', {}).get('RequestId', 'unknown')}", *_notes(error))
    if code in _REJECTED or (copied_to and code == _NOT_ENABLED):
        return unusable(
            f"{doing}: AWS rejects the credentials: {code}",
            hint=_hint_about_credentials(code, copied_to),
            details=details,
        )
    # The encoded message that follows has kilobytes.
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code in _FORBIDDEN:
        permission = f"{'sts' if error.operation_name == 'AssumeRole' else service}:{error.operation_name}"
        hint = f"allow {permission} for these credentials, then run it again"
    else:
        hint = "run it again when the cause is gone"
    return failure(": ".join(part for part in (doing, code, reason) if part), hint=hint, details=details)


def _hint_about_credentials(code: str, copied_to: str) -> str:
    if code in _EXPIRED:
        return "renew the credentials, then run it again: finished work is kept"
    if not copied_to:
        return _NOT_ACCEPTED_HINT
    command = f"aws account enable-region --region-name {copied_to}"
    return f"enable the region for the account (`{command}`, which takes minutes), {_without(copied_to)}"


def _without(region: str) -> str:
    return f"or leave {region} out of targets.aws.publish.regions. Then run it again: finished copies are kept"


def _notes(error: BaseException) -> tuple[str, ...]:
    return tuple(getattr(error, "__notes__", ()))
