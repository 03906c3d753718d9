"""Deployments: a template's expressions are evaluated, its resources made in the order of their dependencies."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from imagegen.rehearsal.clouds.azure import machines, networks, vaults
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.expressions import Evaluator, invalid
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, region
from imagegen.rehearsal.clouds.azure.world import Call, World
from imagegen.rehearsal.network.messages import Response

DEPLOYMENT = "Microsoft.Resources/deployments"
MAX_RESOURCES = 100
_SECRET_TYPES = ("securestring", "secureobject")

_Create = Callable[[World, GroupId, str, Resource], Resource]
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


def validate(world: World, call: Call) -> Response:
    """What a deployment would do, with nothing done."""
    specs = _evaluated(world, call)
    return Response.of_json(
        200, {"id": _id(call), "name": call.names["deployment"], "properties": _properties(call, specs)}
    )


def put(world: World, call: Call) -> Response:
    """The whole deployment at once: when the answer is given, all of it is there, or an error says what is not."""
    old = world.resources.find(_id(call))
    specs = _ordered(world, call.group, _evaluated(world, call))
    for spec in specs:
        try:
            made = _CREATORS[spec["type"].lower()](world, call.group, spec["name"], spec)
        except ArmError as error:
            message = (
                f"At least one resource deployment operation failed: {spec['type']} {spec['name']}: {error.message}"
            )
            raise ArmError(
                error.status if error.status >= 400 else 400, error.code, message, fault=error.fault
            ) from error
        world.resources.put(made)
    deployment = {
        "id": _id(call),
        "name": call.names["deployment"],
        "type": DEPLOYMENT,
        "properties": _properties(call, specs),
    }
    world.templates[_id(call).lower()] = call.request.json()["properties"]["template"]
    return Response.of_json(200 if old else 201, world.resources.put(deployment))


def get(world: World, call: Call) -> Response:
    return Response.of_json(200, world.resources.get(_id(call)))


def list_all(world: World, call: Call) -> Response:
    world.group(call.group)
    return Response.of_json(200, {"value": world.resources.children(f"{call.group}/providers/{DEPLOYMENT}")})


def export(world: World, call: Call) -> Response:
    """The template as it was sent, with its expressions and tags, and without the values of its parameters."""
    world.resources.get(_id(call))
    return Response.of_json(200, {"template": world.templates[_id(call).lower()]})


def delete(world: World, call: Call) -> Response:
    """Only the record goes; 204 and no body, for a body here upsets newer clients."""
    world.group(call.group)
    world.resources.remove(_id(call))
    return Response(204)


def operations(world: World, call: Call) -> Response:
    """What the deployment made, one operation each."""
    deployment = world.resources.get(_id(call))
    value = []
    for target in deployment["properties"]["outputResources"]:
        name = str(uuid.uuid5(uuid.NAMESPACE_URL, target["id"]))
        properties = {"provisioningOperation": "Create", "provisioningState": "Succeeded", "targetResource": target}
        value.append({"id": f"{_id(call)}/operations/{name}", "operationId": name, "properties": properties})
    return Response.of_json(200, {"value": value})


def _id(call: Call) -> str:
    return call.id(DEPLOYMENT, "deployment")


def _properties(call: Call, specs: list[Resource]) -> Resource:
    made = [
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
        "outputResources": made,
    }


def _evaluated(world: World, call: Call) -> list[Resource]:
    """Every resource of the template, children taken out, with final values."""
    group = world.group(call.group)
    properties = call.request.json().get("properties", {})
    template = properties.get("template")
    if not isinstance(template, dict) or properties.get("mode") != "Incremental":
        raise ArmError(
            400, "InvalidRequestContent", "only incremental deployments of an inline template are played here"
        )
    evaluator = Evaluator(
        parameters=_parameters(template, properties.get("parameters", {})),
        variables=template.get("variables", {}),
        group=call.group,
        location=group["location"],
    )
    specs: list[Resource] = []
    for raw in template.get("resources", []):
        specs += _flat(evaluator, raw, "", "")
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


def _flat(evaluator: Evaluator, raw: Mapping[str, Any], parent_type: str, parent_name: str) -> list[Resource]:
    children = raw.get("resources", [])
    condition = evaluator.value(raw.get("condition", True))
    if condition is False:
        return []
    spec: Resource = evaluator.value({key: value for key, value in raw.items() if key != "resources"})
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
        specs += _flat(evaluator, child, spec["type"], spec["name"])
    return specs


def _ordered(world: World, group: GroupId, specs: list[Resource]) -> list[Resource]:
    waiting = list(specs)
    own = {_key(group, f"{spec['type']}/{spec['name']}") for spec in specs}
    done: set[str] = set()
    ordered: list[Resource] = []
    while waiting:
        ready = [
            spec for spec in waiting if all(_met(world, group, each, own, done) for each in spec.get("dependsOn", []))
        ]
        if not ready:
            raise invalid(f"the resource '{waiting[0]['name']}' depends on what is not there, or on itself")
        for spec in ready:
            ordered.append(spec)
            waiting.remove(spec)
            done.add(group.resource(spec["type"], spec["name"]).lower())
    return ordered


def _key(group: GroupId, reference: str) -> str:
    """The id that a dependency means: an id, or a type and a name put together as A.B/c/d/name-of-c/name-of-d."""
    text = reference.strip("/")
    if text.lower().startswith("subscriptions/"):
        return f"/{text}".lower()
    namespace, *parts = text.split("/")
    half = len(parts) // 2
    if not parts or len(parts) % 2:
        raise invalid(f"the dependency '{reference}' cannot be read")
    return group.resource("/".join((namespace, *parts[:half])), "/".join(parts[half:])).lower()


def _met(world: World, group: GroupId, reference: str, own: set[str], done: set[str]) -> bool:
    key = _key(group, reference)
    return key in done if key in own else world.resources.find(key) is not None
