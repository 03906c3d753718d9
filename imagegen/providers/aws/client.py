"""Clients of AWS' services for a run's credentials, and what their errors mean for an operator."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypedDict, cast

from imagegen.errors import ConfigError, PublishError
from imagegen.providers.aws.endpoint import explained_endpoint
from imagegen.providers.aws.faults import is_unknown_host
from imagegen.providers.aws.pages import PageError, refuse_pages
from imagegen.providers.aws.role import assume_role
from imagegen.providers.deadline import CONNECT_S, READ_S, RETRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import boto3
    import botocore.config
    import botocore.session
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError
    from botocore.loaders import Loader
    from mypy_boto3_ec2.client import EC2Client

    from imagegen.errors import ImagegenError
    from imagegen.providers.aws.settings import Auth
    from imagegen.providers.deadline import Deadline

    Clients = Callable[[str], EC2Client]
    ServiceClients = Callable[[str, str], Any]


class ClientOptions(TypedDict):
    """What every client is made with."""

    config: botocore.config.Config
    verify: str | None


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
_EXPIRED = frozenset({"ExpiredToken", "RequestExpired"})
_MAY_NOT = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_CREDENTIALS_HINT = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), "
    "or run where a role is given"
)
# A region that an account has not enabled answers with this, or as if the credentials were wrong.
_NOT_ENABLED = "OptInRequired"
_NOT_ACCEPTED_HINT = f"{_CREDENTIALS_HINT}; and check that the account has enabled the region"


@contextlib.contextmanager
def ec2_clients(environ: Mapping[str, str], auth: Auth) -> Iterator[Clients]:
    """A client of EC2 per region, as `service_clients` makes them."""
    with service_clients(environ, auth) as clients:
        yield lambda region: clients("ec2", region)


@contextlib.contextmanager
def service_clients(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> Iterator[ServiceClients]:
    """A client per service and region, made when first asked for and closed at the end.

    With a deadline, nothing is asked after it, and what fails is tried once more.
    """
    options = _client_options(environ, deadline)
    clients: dict[tuple[str, str], Any] = {}
    session: boto3.Session | None = None

    def client(service: str, region: str) -> Any:  # noqa: ANN401 - each service has a class of its own
        # The session is made late, so that what is wrong with it is explained where the first client is asked for.
        nonlocal session
        session = session or session_for(environ, auth, region, options)
        if (service, region) not in clients:
            # The stubs know the names of services as literals.
            with explained_endpoint(environ):
                made: Any = session.client(cast("Any", service), region_name=region, **options)
            clients[service, region] = made
            if deadline is not None:
                _keep_to(deadline, made)
            refuse_pages(made)
        return clients[service, region]

    try:
        yield client
    finally:
        for made in clients.values():
            made.close()


@functools.cache
def _service_models() -> Loader:
    """EC2's description is megabytes of JSON: read once, not once for each session."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def session_for(
    environ: Mapping[str, str], auth: Auth, region: str, options: ClientOptions | None = None
) -> boto3.Session:
    """Credentials by the same rules as Packer's plugin: the config's profile, else the chain; then the role, if any."""
    owner = _chain(environ, auth.profile, region)
    if auth.assume_role is None:
        return owner
    import boto3

    core = _core(environ)
    assume_role(core, owner, auth.assume_role, environ, options or _client_options(environ))
    return boto3.Session(region_name=region, botocore_session=core)


def _chain(environ: Mapping[str, str], profile: str | None, region: str) -> boto3.Session:
    import boto3

    core = _core(environ)
    # Without keys or a profile, botocore goes through its own chain (web identity, containers, instance roles), which
    # reads the process's environment, as it does for proxies: there is no way to hand it one.
    if environ.get("AWS_ACCESS_KEY_ID") and profile is None:
        return boto3.Session(
            aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environ.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=environ.get("AWS_SESSION_TOKEN") or None,
            region_name=region,
            botocore_session=core,
        )
    named = profile or environ.get("AWS_PROFILE") or None
    return boto3.Session(profile_name=named, region_name=region, botocore_session=core)


def _core(environ: Mapping[str, str]) -> botocore.session.Session:
    import botocore.session

    core = botocore.session.get_session()
    core.register_component("data_loader", _service_models())
    for variable, name in (("config_file", "AWS_CONFIG_FILE"), ("credentials_file", "AWS_SHARED_CREDENTIALS_FILE")):
        if name in environ:
            core.set_config_variable(variable, environ[name])
    return core


def _keep_to(deadline: Deadline, made: BaseClient) -> None:
    import botocore.exceptions as sdk

    class NoTimeLeftError(sdk.BotoCoreError):
        """No error of the network: botocore would try those again."""

        fmt = "there was no time left of {limit_s:g} seconds"

    def check(**_: object) -> None:
        if not deadline.left_s:
            raise NoTimeLeftError(limit_s=deadline.limit_s)

    made.meta.events.register("before-send", check)


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
def explained(doing: str, failure: type[ImagegenError], *, copied_to: str = "", service: str = "ec2") -> Iterator[None]:
    """Errors of the SDK as errors to act on: `failure`, or ConfigError where the credentials are at fault.

    Whoever publishes had credentials that were accepted: what goes wrong with them then is publishing's failure.
    `copied_to` is a region that gets a copy, where the fault may be that it is named at all; `service` is the one that
    is asked, by its name in permissions.
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
        hint = "check the network and the region, and run it again"
        if copied_to and is_unknown_host(error):
            hint = f"check that AWS has a region {copied_to}, {_without(copied_to)}"
        raise failure(f"{doing}: {error}", hint=hint, details=_notes(error)) from error
    except PageError as error:
        hint = f"have {error.host} let through, or set HTTPS_PROXY to a proxy that lets it, and run it again"
        raise failure(f"{doing}: {error}", hint=hint) from error
    except ResponseParserError as error:
        reason = str(error).partition("\n")[0]
        raise failure(f"{doing}: AWS' answer is cut off or not AWS': {reason}", hint="run it again") from error


def _from_answer(
    doing: str,
    error: ClientError,
    failure: type[ImagegenError],
    unusable: type[ImagegenError],
    copied_to: str,
    service: str,
) -> ImagegenError:
    told = error.response.get("Error", {})
    code, message = told.get("Code", ""), told.get("Message", "")
    details = (f"request id: {error.response.get('ResponseMetadata', {}).get('RequestId', 'unknown')}", *_notes(error))
    if code in _WHO or (copied_to and code == _NOT_ENABLED):
        return unusable(
            f"{doing}: AWS does not accept the credentials: {code}",
            hint=_hint_about_credentials(code, copied_to),
            details=details,
        )
    # What follows is an encoded blob of kilobytes.
    reason = message.partition("Encoded authorization failure message")[0].strip()
    if code in _MAY_NOT:
        asked = "sts" if error.operation_name == "AssumeRole" else service
        hint = f"allow {asked}:{error.operation_name} for these credentials, and run it again"
    else:
        hint = "run it again when the reason is gone"
    return failure(": ".join(part for part in (doing, code, reason) if part), hint=hint, details=details)


def _hint_about_credentials(code: str, copied_to: str) -> str:
    if code in _EXPIRED:
        return "renew the credentials, and run it again: what is there is kept"
    if not copied_to:
        return _NOT_ACCEPTED_HINT
    enable = f"aws account enable-region --region-name {copied_to}"
    return f"enable the region for the account (`{enable}`, which takes minutes), {_without(copied_to)}"


def _without(region: str) -> str:
    return f"or leave {region} out of targets.aws.publish.regions. Then run it again: finished copies are kept"


def _notes(error: BaseException) -> tuple[str, ...]:
    return tuple(getattr(error, "__notes__", ()))
