"""Deployments: evaluates the expressions of a template, and creates its resources in the order of dependencies."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from imagegen.rehearsal.clouds.azure import machines, networks, vaults
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.expressions import Evaluator, invalid
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.clouds.azure.state import AzureState, Call
from imagegen.rehearsal.network.messages import Response

DEPLOYMENT = "Microsoft.Resources/deployments"
MAX_RESOURCES = 100
_SECRET_TYPES = ("securestring", "secureobject")

_Create = Callable[[AzureState, GroupId, str, Resource], Resource]
_CREATORS: Mapping[str, _Create] = {
    machines.MACHINE.lower(): machines.create,
    machines.EXTENSION.lower(): machines.create_extension,
    networks.ADDRESS.lower(): networks.create_address,
    networks.INTERFACE.lower(): networks.create_interface,
    networks.NETWORK.lower(): networks.create_network,
    networks.SECURITY_GROUP.lower(): networks.create_security_group,
    vaults.VAULT.lower(): vaults.create,
    vaults.SECRET.lower(): vaults.create_secret,
}


def validate(state: AzureState, call: Call) -> Response:
    """Validate a deployment without creating anything."""
    specs = _evaluate(state, call)
    return Response.of_json(
        200, {"id": _id(call), "name": call.names["deployment"], "properties": _properties(call, specs)}
    )


def put(state: AzureState, call: Call) -> Response:
    """Create all resources before the answer, which is an error if one of them could not be created."""
    old = state.resources.find(_id(call))
    specs = _order(state, call.group, _evaluate(state, call))
    for spec in specs:
        try:
            resource = _CREATORS[spec["type"].lower()](state, call.group, spec["name"], spec)
        except ArmError as error:
            message = (
                f"At least one resource deployment operation failed: {spec['type']} {spec['name']}: {error.message}"
            )
            raise ArmError(
                error.status if error.status >= 400 else 400, error.code, message, fault=error.fault
            ) from error
        state.resources.put(resource)
    deployment = {
        "id": _id(call),
        "name": call.names["deployment"],
        "type": DEPLOYMENT,
        "properties": _properties(call, specs),
    }
    state.templates[_id(call).lower()] = call.request.json()["properties"]["template"]
    return Response.of_json(200 if old else 201, state.resources.put(deployment))


def get(state: AzureState, call: Call) -> Response:
    return Response.of_json(200, state.resources.get(_id(call)))


def list_all(state: AzureState, call: Call) -> Response:
    state.group(call.group)
    return Response.of_json(200, {"value": state.resources.children(f"{call.group}/providers/{DEPLOYMENT}")})


def export(state: AzureState, call: Call) -> Response:
    """Return the original template, with its expressions and tags and without the values of its parameters."""
    state.resources.get(_id(call))
    return Response.of_json(200, {"template": state.templates[_id(call).lower()]})


def delete(state: AzureState, call: Call) -> Response:
    """Delete only the record. Newer clients fail if the answer has a body."""
    state.group(call.group)
    state.resources.remove(_id(call))
    return Response(204)


def list_operations(state: AzureState, call: Call) -> Response:
    """List one operation for each resource of the deployment."""
    deployment = state.resources.get(_id(call))
    value = []
    for target in deployment["properties"]["outputResources"]:
        name = str(uuid.uuid5(uuid.NAMESPACE_URL, target["id"]))
        properties = {"provisioningOperation": "Create", "provisioningState": "Succeeded", "targetResource": target}
        value.append({"id": f"{_id(call)}/operations/{name}", "operationId": name, "properties": properties})
    return Response.of_json(200, {"value": value})


def _id(call: Call) -> str:
    return call.id(DEPLOYMENT, "deployment")


def _properties(call: Call, specs: list[Resource]) -> Resource:
    outputs = [
        {
            "id": call.group.resource(spec["type"], spec["name"]),
            "resourceType": spec["type"],
            "resourceName": spec["name"],
        }
        for spec in specs
    ]
    return {
        "provisioningState": "Succeeded",
        "mode": "Incremental",
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(),
        "duration": "PT1S",
        "outputResources": outputs,
    }


def _evaluate(state: AzureState, call: Call) -> list[Resource]:
    """Evaluate the template. Returns its resources as a flat list, with final values."""
    group = state.group(call.group)
    properties = call.request.json().get("properties", {})
    template = properties.get("template")
    if not isinstance(template, dict) or properties.get("mode") != "Incremental":
        raise ArmError(
            400, "InvalidRequestContent", "a rehearsal supports only incremental deployments of an inline template"
        )
    evaluator = Evaluator(
        parameters=_parameters(template, properties.get("parameters", {})),
        variables=template.get("variables", {}),
        group=call.group,
        location=group["location"],
    )
    specs: list[Resource] = []
    for raw in template.get("resources", []):
        specs += _flatten(evaluator, raw, "", "")
    if len(specs) > MAX_RESOURCES:
        raise invalid(f"more than {MAX_RESOURCES} resources")
    for spec in specs:
        spec["location"] = region(spec.get("location", group["location"]))
    return specs


def _parameters(template: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    declared = template.get("parameters", {})
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise invalid(f"the template parameters '{', '.join(unknown)}' are not declared")
    values = {}
    for name, declaration in declared.items():
        source = given.get(name, declaration)
        key = "value" if name in given else "defaultValue"
        if key not in source:
            raise invalid(f"the value for the template parameter '{name}' is not provided")
        kind = str(declaration.get("type", "")).lower()
        if kind in ("string", *_SECRET_TYPES[:1]) and not isinstance(source[key], str):
            raise invalid(f"the template parameter '{name}' is not a string")
        values[name] = source[key]
    return values


def _flatten(evaluator: Evaluator, raw: Mapping[str, Any], parent_type: str, parent_name: str) -> list[Resource]:
    children = raw.get("resources", [])
    condition = evaluator.evaluate(raw.get("condition", True))
    if condition is False:
        return []
    spec: Resource = evaluator.evaluate({key: value for key, value in raw.items() if key != "resources"})
    if not spec.get("apiVersion"):
        raise invalid(f"the resource '{spec.get('name')}' has no apiVersion")
    if parent_type:
        spec["type"] = f"{parent_type}/{spec['type']}"
        spec["name"] = f"{parent_name}/{spec['name']}"
    if str(spec["type"]).lower() not in _CREATORS:
        fault = f"unexpected resource type in a template: {spec['type']}"
        raise ArmError(400, "InvalidTemplate", fault, fault=fault)
    specs = [spec]
    for child in children:
        specs += _flatten(evaluator, child, spec["type"], spec["name"])
    return specs


def _order(state: AzureState, group: GroupId, specs: list[Resource]) -> list[Resource]:
    waiting = list(specs)
    own = {_dependency_id(group, f"{spec['type']}/{spec['name']}") for spec in specs}
    done: set[str] = set()
    ordered: list[Resource] = []
    while waiting:
        ready = [
            spec
            for spec in waiting
            if all(_is_created(state, group, reference, own, done) for reference in spec.get("dependsOn", []))
        ]
        if not ready:
            raise invalid(f"the resource '{waiting[0]['name']}' depends on a missing resource, or on itself")
        for spec in ready:
            ordered.append(spec)
            waiting.remove(spec)
            done.add(group.resource(spec["type"], spec["name"]).lower())
    return ordered


def _dependency_id(group: GroupId, reference: str) -> str:
    """The id of a dependency, which can be an id, or a type with a name such as A.B/c/d/name-of-c/name-of-d."""
    text = reference.strip("/")
    if text.lower().startswith("subscriptions/"):
        return f"/{text}".lower()
    namespace, *parts = text.split("/")
    half = len(parts) // 2
    if not parts or len(parts) % 2:
        raise invalid(f"the dependency '{reference}' cannot be read")
    return group.resource("/".join((namespace, *parts[:half])), "/".join(parts[half:])).lower()


def _is_created(state: AzureState, group: GroupId, reference: str, own: set[str], done: set[str]) -> bool:
    resource_id = _dependency_id(group, reference)
    return resource_id in done if resource_id in own else state.resources.find(resource_id) is not None
