"""The rules for names and paths of files on the machine. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import limit_of, paths, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.nodes import is_inside, lies_at, program_places
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule

# Enough for a subfolder and the name of a program.
_ROOM_IN_A_FOLDER: Final = 60
_SHORT_NAME: Final = re.compile(r"~[0-9]")
_ANOTHER_FOLDER: Final = "choose another folder, for example C:\\tools"


@rule("no-device-name", ERROR, "A file or folder must not have the name of a Windows device")
def no_device_name(given: RuleInput) -> list[Finding]:
    return [
        Finding(path, f"{part} is a device of Windows, with any extension", "choose another name")
        for path, name in [*program_places(given), *_file_names(given)]
        for part in re.split(r"[\\/]", name)
        # Windows ignores blanks before the dot.
        if part.partition(".")[0].rstrip(" ").lower() in table("layout")["device_names"]
    ]


def _file_names(given: RuleInput) -> list[tuple[YamlPath, str]]:
    """The names of files and folders on the machine that come from a config."""
    config, containerd = given.config, given.config.runtime.containerd
    providers, registries = config.credential_providers, containerd.registry_mirrors if containerd else ()
    return [
        (("cloudbase_init", "logging", "file"), config.cloudbase_init.logging.file),
        # The name of its profile folder.
        (("cloudbase_init", "user"), config.cloudbase_init.user),
        *((("credential_providers", index, "name"), provider.name) for index, provider in enumerate(providers)),
        *((("runtime", "containerd", "registry_mirrors", registry), registry) for registry in registries),
        *config.own_files().items(),
    ]


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


@rule("kubeadm-script-is-powershell", ERROR, "kubeadm_scripts must be PowerShell files")
def kubeadm_script_is_powershell(given: RuleInput) -> list[Finding]:
    scripts = given.config.kubeadm_scripts
    return [
        Finding(
            ("kubeadm_scripts", when, index),
            f"{file} is not a PowerShell file, so nothing on the node would run it",
            "write a file that ends with .ps1",
        )
        for when, files in (("pre", scripts.pre), ("post", scripts.post))
        for index, file in enumerate(files)
        if not file.lower().endswith(".ps1")
    ]


@rule("script-is-powershell", ERROR, "scripts must be PowerShell files")
def script_is_powershell(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            ("scripts", index),
            f"{script.file} is not a PowerShell file, so PowerShell would not run it",
            "write a file that ends with .ps1",
        )
        for index, script in enumerate(given.config.all_scripts)
        if not script.file.lower().endswith(".ps1")
    ]


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


@rule("no-short-name", ERROR, "A path must not contain a short name (8.3)")
def no_short_name(given: RuleInput) -> Iterator[Finding]:
    """The other rules for paths cannot know to which folder PROGRA~1 leads."""
    for path, place in program_places(given):
        if short := next((part for part in place.split("\\") if _SHORT_NAME.search(part)), None):
            yield Finding(
                path,
                f"{short} has the form of a short name, which may lead to a different folder in each image",
                "write the long name",
            )


@rule("name-of-its-own", ERROR, "An image must not have the name of a folder that imagegen uses below --out")
def name_of_its_own(given: RuleInput) -> Iterator[Finding]:
    if given.config.name in table("layout")["output_folders"]:
        yield Finding(
            ("name",),
            f"imagegen uses the folder {given.config.name} below --out",
            f"choose another name, for example {given.config.name}-image",
        )


@rule("path-length", ERROR, "A path must not exceed the 259 characters that Windows supports")
def path_length(given: RuleInput) -> Iterator[Finding]:
    whole, part = limit_of("windows_path"), limit_of("windows_part")
    for path, place in program_places(given):
        most = whole["max"] - (_ROOM_IN_A_FOLDER if path[-1] == "install_path" else 0)
        if len(place) > most:
            kept = f", and {_ROOM_IN_A_FOLDER} are reserved for files in the folder" if most < whole["max"] else ""
            yield Finding(
                path,
                f"it has {len(place)} characters: {whole['reason']}{kept}",
                f"choose a path with at most {most} characters",
            )
        elif longest := next((name for name in place.split("\\") if len(name) > part["max"]), ""):
            yield Finding(
                path, f"{longest[:20]}… has {len(longest)} characters: {part['reason']}", "choose a shorter name"
            )
