"""The behaviour of every kind of resource on the model machine, by its name in plan.json."""

from __future__ import annotations

from imagegen.rehearsal.machine.kinds import (
    acl,
    archive,
    certificate,
    command,
    defender,
    directory,
    feature,
    file,
    firewall,
    image,
    package,
    path,
    registry,
    script,
    service,
    task,
    update,
    volume,
)
from imagegen.rehearsal.machine.kinds.kind import Kind

BEHAVIOUR: dict[str, Kind] = {
    "acl": Kind(acl.get, acl.test, acl.put),
    "archive": Kind(archive.get, archive.test, archive.put),
    "certificate": Kind(certificate.get, certificate.test, certificate.put),
    "command": Kind(command.get, command.test, command.put),
    "defender": Kind(defender.get, defender.test, defender.put),
    "directory": Kind(directory.get, directory.test, directory.put),
    "feature": Kind(feature.get, feature.test, feature.put),
    "file": Kind(file.get, file.test, file.put),
    "firewall": Kind(firewall.get, firewall.test, firewall.put),
    "image": Kind(image.get, image.test, image.put),
    "package": Kind(package.get, package.test, package.put),
    "path": Kind(path.get, path.test, path.put),
    "registry": Kind(registry.get, registry.test, registry.put),
    "script": Kind(script.get, script.test, script.put),
    "service": Kind(service.get, service.test, service.put),
    "task": Kind(task.get, task.test, task.put),
    "update": Kind(update.get, update.test, update.put),
    "volume": Kind(volume.get, volume.test, volume.put),
}
