"""Answers for login.microsoftonline.com: one tenant, one application, and the discovery requests of the SDKs."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import secrets
import time

from imagegen.rehearsal.network.messages import Request, Response

HOST = "login.microsoftonline.com"
LIFETIME_S = 3_600
_TOKEN_PATH = re.compile(r"/(?P<tenant>[^/]+)/oauth2(?P<version>/v2\.0)?/token\Z")
_DISCOVERY_PATH = re.compile(r"/(?P<tenant>[^/]+)(?:/v2\.0)?/\.well-known/openid-configuration\Z")


@dataclasses.dataclass(frozen=True)
class Application:
    """The temporary service principal of a rehearsal."""

    tenant: str = "11111111-1111-4111-8111-111111111111"
    subscription: str = "22222222-2222-4222-8222-222222222222"
    client_id: str = "33333333-3333-4333-8333-333333333333"
    object_id: str = "44444444-4444-4444-8444-444444444444"
    secret: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)


class Login:
    """Issues tokens, and remembers the audience of each."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._audiences: dict[str, str] = {}

    def audience(self, request: Request) -> str:
        """The audience of the request's bearer token; empty if the token was not issued here."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return self._audiences.get(token, "") if scheme.lower() == "bearer" else ""

    def __call__(self, request: Request) -> Response:
        token = _TOKEN_PATH.match(request.path)
        if token is not None and request.method == "POST":
            return self._answer_token(request, token["tenant"], is_v2=token["version"] is not None)
        discovery = _DISCOVERY_PATH.match(request.path)
        if discovery is not None and request.method == "GET":
            return Response.of_json(200, _configuration(discovery["tenant"]))
        if request.path == "/common/discovery/instance" and request.method == "GET":
            return Response.of_json(200, _instances(self._application.tenant))
        return Response(404, fault=f"unexpected login request {request.method} {request.path}")

    def _answer_token(self, request: Request, tenant: str, *, is_v2: bool) -> Response:
        form = request.form()
        application = self._application
        if tenant != application.tenant:
            return _denied("invalid_request", f"AADSTS90002: Tenant '{tenant}' not found.")
        if form.get("grant_type") != "client_credentials":
            return _denied("unsupported_grant_type", "AADSTS70003: a rehearsal supports only client_credentials.")
        if (form.get("client_id"), form.get("client_secret")) != (application.client_id, application.secret):
            return _denied("invalid_client", "AADSTS7000215: Invalid client secret provided.")
        audience = form.get("scope", "").removesuffix("/.default") if is_v2 else form.get("resource", "")
        if not audience:
            return _denied("invalid_scope", "AADSTS70011: the scope or resource is missing.")
        token = self._issue_token(audience)
        value: dict[str, object] = {"token_type": "Bearer", "access_token": token}
        if is_v2:
            value |= {"expires_in": LIFETIME_S, "ext_expires_in": LIFETIME_S}
        else:
            expires = int(time.time()) + LIFETIME_S
            value |= {"expires_in": str(LIFETIME_S), "expires_on": str(expires), "resource": audience}
        return dataclasses.replace(Response.of_json(200, value), note="login:token")

    def _issue_token(self, audience: str) -> str:
        now = int(time.time())
        claims = {
            "aud": audience,
            "iss": f"https://sts.windows.net/{self._application.tenant}/",
            "iat": now,
            "nbf": now,
            "exp": now + LIFETIME_S,
            "appid": self._application.client_id,
            "oid": self._application.object_id,
            "tid": self._application.tenant,
        }
        parts = (
            json.dumps({"typ": "JWT", "alg": "RS256"}).encode(),
            json.dumps(claims).encode(),
            secrets.token_bytes(256),
        )
        token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
        self._audiences[token] = audience.rstrip("/")
        return token


def _denied(code: str, description: str) -> Response:
    return Response.of_json(400, {"error": code, "error_description": description})


def _configuration(tenant: str) -> dict[str, object]:
    base = f"https://{HOST}/{tenant}"
    return {
        "issuer": f"{base}/v2.0",
        "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
        "token_endpoint": f"{base}/oauth2/v2.0/token",
        "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
        "jwks_uri": f"{base}/discovery/v2.0/keys",
        "tenant_region_scope": "EU",
        "cloud_instance_name": "microsoftonline.com",
    }


def _instances(tenant: str) -> dict[str, object]:
    return {
        "tenant_discovery_endpoint": f"https://{HOST}/{tenant}/v2.0/.well-known/openid-configuration",
        "api-version": "1.1",
        "metadata": [
            {"preferred_network": HOST, "preferred_cache": "login.windows.net", "aliases": [HOST, "login.windows.net"]}
        ],
    }
