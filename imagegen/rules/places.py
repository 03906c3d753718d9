"""The rules for names and paths of files on the machine. Pure."""

from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import paths, table
from imagegen.config.checks import lies_at
from imagegen.rules.nodes import is_inside, program_places
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule

_ANOTHER_FOLDER: Final = "choose another folder, for example C:\\tools"


@rule("not-the-systems-own", ERROR, "Programs must not be in folders of Windows")
def not_the_systems_own(given: RuleInput) -> Iterator[Finding]:
    layout, of_clouds = table("layout"), table("machines")["systems_own"]
    systems_own = [*layout["systems_own"], *(path for cloud in given.providers for path in of_clouds[cloud]["paths"])]
    for path, place in program_places(given):
        own = next((owned for owned in systems_own if lies_at(place, owned)), None)
        own = own or next((folder for folder in layout["system_folders"] if place.lower() == folder.lower()), None)
        # The rule install-path-of-its-own reports an install path in these folders.
        is_reported = path[0] != "executables" and own in (*layout["system_folders"], "C:\\Windows")
        # The rule outlives-sealing reports these.
        is_reported = is_reported or any(lies_at(place, deleted) for deleted in layout["deleted_by_sealing"])
        if own and not is_reported:
            yield Finding(
                path,
                f"{own} belongs to Windows, which may change, hide or delete its files",
                _ANOTHER_FOLDER,
            )


# Programs of other software may be in these folders of imagegen.
_SHARED: Final = ("kubernetes", "containerd", "cni_bin")


@rule("not-the-images-own", ERROR, "Programs must not be in folders whose content imagegen or the node makes")
def not_the_images_own(given: RuleInput) -> Iterator[Finding]:
    """The rule same-place-twice reports imagegen's own files, and not-the-systems-own those of Windows."""
    layout = {**paths(), "kubernetes": given.config.kubernetes.install_path}
    inside = table("layout")["own_folders"].items()
    folders = [folder for folder in layout.values() if not is_inside(folder, "C:\\Windows")]
    closed = [folder for name, folder in layout.items() if name not in _SHARED and folder in folders]
    closed += [f"{layout[name]}\\{folder}" for name, own in inside for folder in own]
    places = {path: place for path, place in program_places(given) if path[0] == "executables"}
    for path, place in places.items():
        if place in table("layout")["system_folders"]:
            continue
        others = [other for at, other in places.items() if at != path and other.lower() != place.lower()]
        if owned := next((folder for folder in closed if is_inside(place, folder)), None):
            yield Finding(path, f"the content of {owned} is made by imagegen or by the node", _ANOTHER_FOLDER)
        elif inner := next((one for one in [*folders, *others] if is_inside(one, place)), None):
            same = inner.lower() == place.lower()
            yield Finding(path, f"{place} is a folder{'' if same else f', which has {inner}'}", "add a file name")


@rule("name-of-its-own", ERROR, "An image must not have the name of a folder that imagegen uses below --out")
def name_of_its_own(given: RuleInput) -> Iterator[Finding]:
    if given.config.name in table("layout")["output_folders"]:
        yield Finding(
            ("name",),
            f"imagegen uses the folder {given.config.name} below --out",
            f"choose another name, for example {given.config.name}-image",
        )
