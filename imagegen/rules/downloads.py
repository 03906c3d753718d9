"""The rules for downloads, container images, their credentials and signatures. Pure, except that some rules read
the steps, and the presets of signers."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pydantic

from imagegen.base.hosts import HostPolicy, plain_host
from imagegen.catalog.facts import minor, numbers
from imagegen.config.artifact_policy import ArtifactCredentials, PinnedUrl, Signer, is_url
from imagegen.config.yaml import YamlPath, dotted
from imagegen.fetch.request import NAME, VERSION, find_faults, find_form, is_archive
from imagegen.providers.storage import storages
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from imagegen.authenticode.model import Certificate
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import ArtifactMeta


_CREDENTIALS: Final = ("artifacts", "credentials")
_HOST: Final = re.compile(r"https://([^/{}]+)/")


def _credentials(given: RuleInput) -> Iterator[tuple[YamlPath, ArtifactCredentials]]:
    for index, one in enumerate(given.config.artifacts.credentials):
        yield (*_CREDENTIALS, index), one


@rule("download-credentials-storage", ERROR, "sign_in must name the cloud whose storage the host is")
def download_credentials_storage(given: RuleInput) -> Iterator[Finding]:
    asked = [(path, one, one.sign_in) for path, one in _credentials(given) if one.sign_in]
    known = storages() if asked else {}
    for path, one, cloud in asked:
        if cloud not in known:
            hint = f"write one of {', '.join(sorted(known))}"
            yield Finding((*path, "sign_in"), f"{cloud} has no storage from which imagegen downloads", hint)
        elif not known[cloud].is_host(plain_host(one.host)):
            fitting = [name for name, storage in known.items() if storage.is_host(plain_host(one.host))]
            hint = f"write {fitting[0]}" if fitting else "write token_env, username_env and password_env, or query_env"
            yield Finding((*path, "sign_in"), f"{one.host} is not a host of the storage of {cloud}", hint)


@rule(
    "download-credentials-unused",
    WARNING,
    "An artifact should come from each host in artifacts.credentials",
    why="a host that is spelled wrongly gets no credentials, and its downloads fail",
)
def download_credentials_unused(given: RuleInput) -> Iterator[Finding]:
    asked = list(_credentials(given))
    used = _used_hosts(given) if asked else set()
    for path, one in asked:
        if plain_host(one.host) not in used:
            yield Finding(
                (*path, "host"),
                f"no artifact comes from {one.host}, so nothing uses these credentials",
                "correct the host, or leave them out",
            )


def _used_hosts(given: RuleInput) -> set[str]:
    """The hosts from which artifacts may come. The mirror replaces those of the steps."""
    config = given.config
    urls = [item.url if isinstance(item, PinnedUrl) else item for item in config.overrides.values()]
    urls += [one.url for one in config.credential_providers]
    urls += [one.url for one in config.image_tarballs]
    urls += [one.url for one in config.executables]
    if config.artifacts.mirror:
        urls.append(config.artifacts.mirror)
    else:
        urls += [item.url or "" for step in given.steps().values() for item in step.meta.artifacts.values()]
    return {plain_host(found[1]) for url in urls if (found := _HOST.match(f"{url}/"))}


_REGISTRIES: Final = "registry_credentials"
# crictl reads credentials from CRICTL_AUTH since 1.24: https://github.com/kubernetes-sigs/cri-tools/pull/904. Older
# ones take them only on the command line, which Windows can log.
_FIRST_CRICTL: Final = "1.24"


@rule("registry-credentials-image", ERROR, "The build must pull an image of each registry with credentials")
def registry_credentials_image(given: RuleInput) -> Iterator[Finding]:
    registries = {ImageName.parse(name).registry for spec in given.specs.values() for name in spec.pulled_images}
    for index, one in enumerate(given.config.registry_credentials):
        if one.registry not in registries:
            yield Finding(
                (_REGISTRIES, index, "registry"),
                f"the build pulls no image from {one.registry}, so nothing would use these credentials",
                "leave them out, or write an image of this registry into images",
            )


@rule("registry-credentials-mirror", ERROR, "A registry with credentials must have no mirrors")
def registry_credentials_mirror(given: RuleInput) -> Iterator[Finding]:
    containerd = given.config.runtime.containerd
    for index, one in enumerate(given.config.registry_credentials):
        if containerd and one.registry in containerd.registry_mirrors:
            yield Finding(
                (_REGISTRIES, index, "registry"),
                f"containerd would also send these credentials to the mirrors of {one.registry}",
                f"leave them out, or leave runtime.containerd.registry_mirrors.{one.registry} out",
            )


registry_credentials_kubernetes = simple_rule(
    "registry-credentials-kubernetes",
    ERROR,
    f"With containerd, registry_credentials requires Kubernetes {_FIRST_CRICTL} or later",
    lambda given: (
        given.config.registry_credentials
        and given.config.runtime.containerd
        and numbers(minor(given.config.kubernetes.version)) < numbers(_FIRST_CRICTL)
    ),
    Finding(
        (_REGISTRIES,),
        f"crictl before {_FIRST_CRICTL} takes credentials only on its command line, which Windows can log",
        "list the image in image_tarballs, or copy it to a registry that needs no credentials",
    ),
)


def _listed_images(given: RuleInput) -> list[tuple[YamlPath, str]]:
    config = given.config
    return [
        *((("windows", "container_images", at), name) for at, name in enumerate(config.windows.container_images)),
        *((("images", at), name) for at, name in enumerate(config.images)),
        *((("image_tarballs", at, "name"), one.name) for at, one in enumerate(config.image_tarballs)),
    ]


@rule(
    "mirrored-image-tag",
    ERROR,
    "With Docker, an image of artifacts.mirror must be named by its tag",
    why="Docker imports no image under a name with a digest",
)
def mirrored_image_tag(given: RuleInput) -> Iterator[Finding]:
    policy = given.config.artifacts
    for path, name in _listed_images(given) if given.config.runtime.docker and policy.mirror else ():
        image = ImageName.parse(name)
        if path[0] != "image_tarballs" and image.digest and image.registry not in policy.pull_from:
            yield Finding(
                path, f"{name} has a digest", f"write its tag, or write {image.registry} into artifacts.pull_from"
            )


@rule(
    "container-image-once",
    ERROR,
    "A container image must be listed once",
    why="two spellings of one name are one image",
)
def container_image_once(given: RuleInput) -> Iterator[Finding]:
    pause = given.config.kubernetes.pause_image
    seen: dict[str, tuple[YamlPath, str]] = {str(ImageName.parse(pause)): (("kubernetes",), pause)} if pause else {}
    for path, name in _listed_images(given):
        whole = str(ImageName.parse(name))
        before, spelled = seen.setdefault(whole, (path, name))
        # The pause image may be listed under its own name, and listed-twice is about one list with a value twice.
        is_fine = spelled == name and (before[0] == "kubernetes" or before[:-1] == path[:-1])
        if before != path and not is_fine:
            yield Finding(
                path, f"{name} is in the config already, as {spelled}: both are {whole}", "leave one of them out"
            )


_NAMES: Final = r"[a-z_]+(?:\.[a-z_]+)*"
_CONDITION: Final = re.compile(rf"(?P<key>{_NAMES})(?: (?P<sign>==|!=) (?:'(?P<text>[^']+)'|(?P<other>{_NAMES})))?")


# What a base URL is that has several files.
_SEVERAL: Final = {
    "folder": "a folder with several files (an archive must end with .zip, .tar.gz, .tgz or .tar)",
    "template": "a template for several files",
}


def _artifacts(given: RuleInput) -> list[ArtifactMeta]:
    return [item for step in given.steps().values() for item in step.meta.artifacts.values()]


def _overrides(given: RuleInput) -> dict[str, str]:
    """The URL of each override."""
    return {name: item.url if isinstance(item, PinnedUrl) else item for name, item in given.config.overrides.items()}


def _base_overrides(given: RuleInput) -> dict[str, str]:
    """The overrides whose URL stands for several files, each with what it is."""
    bases = {item.override for item in _artifacts(given) if item.base}
    forms = {name: find_form(url) for name, url in _overrides(given).items() if name in bases}
    return {name: _SEVERAL[form] for name, form in forms.items() if form in _SEVERAL}


@rule("sha256-of-one-file", ERROR, "A sha256 must be of one file, not of a folder or a template")
def sha256_of_one_file(given: RuleInput) -> list[Finding]:
    pinned = [name for name, item in given.config.overrides.items() if isinstance(item, PinnedUrl) and item.sha256]
    return [
        Finding(
            ("overrides", name, "sha256"),
            f"the URL is {what}, so one sha256 cannot match",
            "leave sha256 out: the lock pins each file",
        )
        for name, what in (sorted(_base_overrides(given).items()) if pinned else ())
        if name in pinned
    ]


@rule(
    "base-url-template",
    ERROR,
    "A template must be a base URL, with {name} and no unknown placeholder",
    why="a template stands for one file per program: kubelet, kubeadm and the others have different URLs",
)
def base_url_template(given: RuleInput) -> Iterator[Finding]:
    for name, url in _overrides(given).items():
        if find_form(url) != "template":
            continue
        path = ("overrides", name) if isinstance(given.config.overrides[name], str) else ("overrides", name, "url")
        files = [item for item in _artifacts(given) if item.override == name and item.base]
        if not files:
            bases = sorted({str(item.override) for item in _artifacts(given) if item.base})
            yield Finding(
                path,
                f"{name} is one file, so its URL cannot have placeholders",
                f"write the whole URL, with %7B and %7D for braces; placeholders are for {' and '.join(bases)}",
            )
            continue
        known = (NAME, VERSION) if all(item.version for item in files) else (NAME,)
        yield from (Finding(path, message, hint) for message, hint in find_faults(url, known))
        used = [str(item.path) for item in files if _is_used(item.when, given)]
        if whole := next((file for file in used if is_archive(file)), None):
            yield Finding(
                path,
                f"the config takes all programs from {whole}, and a template is for one file per program",
                "write the URL of that archive, or set kubernetes.source to binaries",
            )


@rule(
    "file-override-idle",
    ERROR,
    "The override of one program requires kubernetes.source: binaries",
    why="otherwise the program comes from the archive of kubernetes_base_url, and the override has no effect",
)
def file_override_idle(given: RuleInput) -> Iterator[Finding]:
    source = given.config.kubernetes.source
    for name in sorted(given.config.overrides) if source != "binaries" else ():
        files = [item for item in _artifacts(given) if item.file_override == name]
        if files and not any(_is_used(item.when, given) for item in files):
            yield Finding(
                ("overrides", name),
                f"kubernetes.source is {source}, so {files[0].path} comes from that archive",
                "set kubernetes.source to binaries; kubernetes_base_url may then still be the URL of an archive",
            )


@rule(
    "sha256-required",
    ERROR,
    "With artifacts.require_sha256 each artifact of your own must have its sha256",
    why="without a digest in the config, the first download decides what the lock pins",
)
def sha256_required(given: RuleInput) -> list[Finding]:
    """Folders are exempt, because the lock pins each of their files."""
    if not given.config.artifacts.require_sha256:
        return []
    without = [path[:2] for path, _, sha256 in _own_artifacts(given) if not sha256]
    folders = _base_overrides(given) if any(path[0] == "overrides" for path in without) else ()
    return [
        Finding(
            path,
            "artifacts.require_sha256 is true, but this artifact has no sha256",
            "write {url: …, sha256: …}",
        )
        for path in without
        if path[0] != "overrides" or path[1] not in folders
    ]


def _own_artifacts(given: RuleInput) -> Iterator[tuple[YamlPath, str, str | None]]:
    """The path of the URL, the URL and the sha256 of each artifact in the config. The artifact has path[:2]."""
    for name, item in given.config.overrides.items():
        if isinstance(item, PinnedUrl):
            yield ("overrides", name, "url"), item.url, item.sha256
        else:
            yield ("overrides", name), item, None
    for index, provider in enumerate(given.config.credential_providers):
        yield ("credential_providers", index, "url"), provider.url, provider.sha256
    for index, tarball in enumerate(given.config.image_tarballs):
        yield ("image_tarballs", index, "url"), tarball.url, tarball.sha256
    for index, executable in enumerate(given.config.executables):
        yield ("executables", index, "url"), executable.url, executable.sha256


@rule("sha256-of-its-url", ERROR, "A sha256 must be written in the same file as its URL")
def sha256_of_its_url(given: RuleInput) -> Iterator[Finding]:
    """A config that extends another and overrides only one of both combines a URL with the digest of another file."""
    for path, _, sha256 in _own_artifacts(given):
        path_of_digest = (*path[:2], "sha256")
        url, digest = _source_of(given, path), _source_of(given, path_of_digest)
        if sha256 and url != digest:
            yield Finding(
                path_of_digest,
                f"the URL comes from {url}, but the sha256 from {digest}, so they belong to different files",
                "write both in one place",
            )


def _source_of(given: RuleInput, path: YamlPath) -> str:
    """The file of a value, or `--set`."""
    place = given.document.place(path)
    return place.file if place.line else "--set"


def _is_used(when: str | None, given: RuleInput) -> bool:
    """Whether a target uses a step or artifact with this `when`. Only keys, facts and their comparisons are judged."""
    choices = [choice.split(" and ") for choice in (when or "").split(" or ")]
    return any(all(_is_so(part, spec) for part in choice) for spec in given.specs.values() for choice in choices)


def _is_so(part: str, spec: Spec) -> bool:
    asked = _CONDITION.fullmatch(part)
    if asked is None:
        return True
    try:
        value, other = _value(asked["key"], spec), asked["text"] or (asked["other"] and _value(asked["other"], spec))
    except AttributeError:
        # A value that only steps see.
        return True
    return bool(value) if asked["sign"] is None else (value == other) == (asked["sign"] == "==")


def _value(key: str, spec: Spec) -> object:
    """The value of a key or a fact; None in a section that the config omits."""
    first, *names = key.split(".")
    value: object = spec.facts if first == "facts" else getattr(spec.config, first)
    for name in names:
        value = None if value is None else getattr(value, name)
    return value


def mirrored_images(given: RuleInput) -> list[str]:
    """The container images that come from artifacts.mirror, by their names in the config."""
    policy = given.config.artifacts
    names = {name for spec in given.specs.values() for name in spec.pulled_images} if policy.mirror else set()
    return sorted(name for name in names if ImageName.parse(name).registry not in policy.pull_from)


@rule("pull-from-used", ERROR, "A registry in artifacts.pull_from must have an image that artifacts.mirror would bring")
def pull_from_used(given: RuleInput) -> Iterator[Finding]:
    policy = given.config.artifacts
    registries = {ImageName.parse(name).registry for spec in given.specs.values() for name in spec.pulled_images}
    for index, registry in enumerate(policy.pull_from):
        if policy.mirror is None:
            message, hint = "without artifacts.mirror, all images are pulled", "leave it out, or set artifacts.mirror"
        elif registry not in registries:
            message, hint = f"the build needs no image of {registry}", "leave it out, or write an image into images"
        else:
            continue
        yield Finding(("artifacts", "pull_from", index), message, hint)


def _has_override_at_mirror(given: RuleInput) -> bool:
    """Whether the mirror serves an override: it was copied there for a closed network."""
    folder = f"{(given.config.artifacts.mirror or '').rstrip('/')}/"
    urls = (one if isinstance(one, str) else one.url for one in given.config.overrides.values())
    return any(url.startswith(folder) for url in urls)


# An override replaces the mirror for its artifact, and so does a URL of the config.
mirror_idle = simple_rule(
    "mirror-idle",
    ERROR,
    "artifacts.mirror must serve at least one artifact or container image",
    lambda given: (
        given.config.artifacts.mirror
        and not mirrored_images(given)
        and not _has_override_at_mirror(given)
        and all(
            item.override is None or any(name in given.config.overrides for name in item.overrides)
            for step in given.steps().values()
            if _is_used(step.meta.when, given)
            for item in step.meta.artifacts.values()
            if _is_used(item.when, given)
        )
    ),
    Finding(
        ("artifacts", "mirror"),
        "every artifact has an override elsewhere, so nothing is downloaded from the mirror",
        "write the overrides that `imagegen artifacts mirror` prints, or leave the mirror or an override out",
    ),
)


# .NET Framework, in a program that names no version of it, decodes these in the path: ansible/ansible#45188.
_DECODED: Final = re.compile("%(?:2F|2E|5C)", re.IGNORECASE)


@rule(
    "url-path-decoded",
    ERROR,
    "The path of a URL must not have %2F, %2E or %5C",
    why="Windows PowerShell decodes them before it sends the request, so the builder would download another URL",
)
def url_path_decoded(given: RuleInput) -> Iterator[Finding]:
    urls = [(path, "the path", url) for path, url, _ in _own_artifacts(given)]
    if mirror := given.config.artifacts.mirror:
        urls.append((("artifacts", "mirror"), "the path", mirror))
    for name, step in (given.steps() if given.config.steps_path else {}).items():
        urls += [
            (("steps_path",), f"the URL of an artifact of the step {name}", item.url or f"{item.base}/{item.path}")
            for item in step.meta.artifacts.values()
            if not any(override in given.config.overrides for override in item.overrides)
        ]
    for path, place, url in urls:
        if found := _DECODED.search(url):
            yield Finding(
                path,
                f'{place} has {found[0]}, for which Windows PowerShell sends "{unquote(found[0])}"',
                "write a URL without it: on GitLab the number of the project in place of its path, or that of a mirror",
            )


@rule("host-allowed", ERROR, "URLs must be on one of artifacts.allowed_hosts")
def host_allowed(given: RuleInput) -> list[Finding]:
    policy = HostPolicy.of(given.config.artifacts.allowed_hosts, ())
    return [
        Finding(
            path,
            f"{host} is not in artifacts.allowed_hosts",
            "add the host there, or use a URL on an allowed host",
        )
        for path, host in _own_hosts(given)
        if not policy.is_allowed(host)
    ]


@rule("host-denied", ERROR, "URLs must not be on one of artifacts.denied_hosts")
def host_denied(given: RuleInput) -> list[Finding]:
    policy = HostPolicy.of((), given.config.artifacts.denied_hosts)
    return [
        Finding(path, f"{host} is in artifacts.denied_hosts", "remove the host there, or use a URL on another host")
        for path, host in _own_hosts(given)
        if policy.is_denied(host)
    ]


def _own_hosts(given: RuleInput) -> Iterator[tuple[YamlPath, str]]:
    """The path of each URL in the config from which something is downloaded, and its host with its port."""
    for path, url, _ in _own_artifacts(given):
        yield path, url.split("/")[2]
    if given.config.artifacts.mirror:
        yield ("artifacts", "mirror"), given.config.artifacts.mirror.split("/")[2]
    policy = given.config.artifacts.signatures
    for at, crl in enumerate(policy.crls if policy else ()):
        if is_url(crl):
            yield ("artifacts", "signatures", "crls", at), crl.split("/")[2]


@rule(
    "listed-twice",
    ERROR,
    "A list must not contain the same item twice",
    why="the second item has no effect, and is often a typing error for another value",
)
def listed_twice(given: RuleInput) -> list[Finding]:
    return [
        Finding((*path, index), f"duplicate item {item!r}", "leave one out")
        for path, items in _string_lists(given.config, ())
        for index, item in enumerate(items)
        if item in items[:index]
    ]


def _string_lists(value: object, at: YamlPath) -> Iterator[tuple[YamlPath, list[str]]]:
    if isinstance(value, (pydantic.BaseModel, dict)):
        for name, inner in value.items() if isinstance(value, dict) else value:
            yield from _string_lists(inner, (*at, name))
    # A command line may have the same word twice.
    elif isinstance(value, list) and at[-1] != "arguments":
        yield at, [item for item in value if isinstance(item, str)]
        for index, inner in enumerate(value):
            yield from _string_lists(inner, (*at, index))


def _trust_files(given: RuleInput) -> Iterator[tuple[YamlPath, str, bytes]]:
    """The files that could be read, with their keys and names."""
    spec = next(iter(given.specs.values()), None)
    for path, name in given.config.trust_files().items():
        file = spec.own_files.get(dotted(path)) if spec else None
        if file is not None:
            yield path, name, file.data


def _read_roots(data: bytes) -> list[Certificate]:
    # Few configs have such files, and what reads them takes long to import.
    from imagegen.authenticode.certificates import read_certificate, read_pem

    return [read_certificate(one) for one in read_pem(data)]


def _roots_fault(data: bytes) -> str:
    """What is wrong with a file of roots; empty if nothing is."""
    from imagegen.authenticode.model import MalformedData

    try:
        roots = _read_roots(data)
    except MalformedData as error:
        return f"cannot be used: {error}"
    if not roots:
        return "cannot be used: the file holds no certificate"
    other = next((one for one in roots if not one.is_self_issued), None)
    return f"has {other.subject}, which is not a root: its issuer is {other.issuer}" if other else ""


def _crl_fault(data: bytes) -> str:
    from imagegen.authenticode.chains import read_revocation_lists
    from imagegen.authenticode.model import MalformedData

    try:
        read_revocation_lists(data)
    except MalformedData as error:
        return str(error)
    return ""


@rule(
    "signature-roots",
    ERROR,
    "artifacts.signatures.roots must be a PEM file with root certificates",
    why="Windows trusts a signature only if it leads to a root, so the machine would reject every other one",
)
def signature_roots(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _trust_files(given):
        if path[-1] == "roots" and (fault := _roots_fault(data)):
            yield Finding(path, f"{name} {fault}", "write the root certificates in PEM into one file")


@rule(
    "signature-roots-of-preset",
    ERROR,
    "artifacts.signatures.roots must have a root of each preset that may sign",
    why="the roots of the file are the only ones, so no signature of the preset would lead to a trusted root",
)
def signature_roots_of_preset(given: RuleInput) -> Iterator[Finding]:
    found = next(((name, data) for path, name, data in _trust_files(given) if path[-1] == "roots"), None)
    signers = [(path, one) for path, one in _signers(given) if isinstance(one, str)] if found else []
    if found is None or not signers or _roots_fault(found[1]):
        return
    from imagegen.authenticode.signer import presets

    name, trusted = found[0], {one.sha256 for one in _read_roots(found[1])}
    for path, signer in signers:
        preset = presets().get(signer.strip())
        if preset and not trusted & {item.issuer.thumbprint for item in preset.conditions if item.issuer}:
            yield Finding(
                path,
                f"no signature of {signer} can be accepted, because {name} has none of its roots",
                f"run `imagegen catalog preset-roots >> {shlex.quote(name)}` in the folder of the config",
            )


def _signers(given: RuleInput) -> Iterator[tuple[YamlPath, str | Signer]]:
    """Each allowed signer with its place."""
    policy = given.config.artifacts.signatures
    for at, signer in enumerate(policy.signers if policy else ()):
        yield ("artifacts", "signatures", "signers", at), signer.given
    for name, item in given.config.overrides.items():
        if isinstance(item, PinnedUrl) and item.signer is not None:
            yield ("overrides", name, "signer"), item.signer.given


def _find_strange(data: bytes, trusted: Iterable[bytes]) -> list[str]:
    """The subjects of the roots that neither Windows can fetch nor the config puts on the machine."""
    from imagegen.authenticode.certificates import read_certificate, read_pem
    from imagegen.authenticode.model import MalformedData
    from imagegen.authenticode.trust import read_public_roots

    strange = dict.fromkeys(read_pem(data))
    for file in trusted:
        # That a file has no certificate is reported by its own key.
        with contextlib.suppress(MalformedData):
            for der in read_pem(file):
                strange.pop(der, None)
    # The public ones take half a second to read.
    public = {root.certificate.der for root in read_public_roots()[0]} if strange else set[bytes]()
    return [str(read_certificate(der).subject) for der in strange if der not in public]


@rule(
    "signature-roots-on-machine",
    WARNING,
    "The own roots of artifacts.signatures.roots should be in windows.trusted_roots",
    why="The machine checks each signature again, and trusts its own store of roots. It fetches only public roots",
)
def signature_roots_on_machine(given: RuleInput) -> Iterator[Finding]:
    spec = next(iter(given.specs.values()), None)
    own = spec.own_files.items() if spec else ()
    trusted = [file.data for key, file in own if key.startswith("windows.trusted_roots[")]
    for path, name, data in _trust_files(given):
        if path[-1] != "roots" or _roots_fault(data) or not (strange := _find_strange(data, trusted)):
            continue
        files = ", ".join([*given.config.windows.trusted_roots, name])
        yield Finding(
            path,
            f"{name} has {' and '.join(strange)}, which Windows does not trust: the build "
            "would refuse what is signed below",
            f"write trusted_roots: [{files}] under windows, unless your base image has "
            f"{'this root' if len(strange) == 1 else 'these roots'}",
        )


@rule(
    "signature-crls",
    ERROR,
    "A file of artifacts.signatures.crls must be a CRL, in PEM or DER",
    why="without its list, a certificate that was revoked would still be accepted",
)
def signature_crls(given: RuleInput) -> Iterator[Finding]:
    for path, name, data in _trust_files(given):
        if path[-1] != "roots" and (fault := _crl_fault(data)):
            yield Finding(path, f"{name} cannot be used: {fault}", "get the CRL from its CA, in PEM or DER")


kube_proxy_and_signatures = simple_rule(
    "kube-proxy-and-signatures",
    WARNING,
    "kube-proxy should be a program of the image where artifacts.signatures requires signatures",
    lambda given: given.config.kube_proxy == "hostprocess" and given.config.artifacts.signatures,
    Finding(
        ("kube_proxy",),
        "kube-proxy is in a container image, and runs as SYSTEM on the node: nobody checks its signature",
        "write kube_proxy: service, which runs a signed program of the image, or kube_proxy: none",
    ),
)


@rule(
    "download-ca-valid",
    ERROR,
    "The certificates of artifacts.ca must be valid today",
    why="a server whose certificate leads to an expired root is refused, by imagegen and by the machine",
)
def download_ca_valid(given: RuleInput) -> Iterator[Finding]:
    spec = next(iter(given.specs.values()), None)
    for path, name in given.config.ca_files().items():
        file = spec.own_files.get(dotted(path)) if spec else None
        # A file that cannot be used is reported by its own key.
        for one in _read_roots(file.data) if file and not _roots_fault(file.data) else ():
            begins, ends = one.not_before.date(), one.not_after.date()
            if not begins <= given.today <= ends:
                when = f"expired on {ends}" if ends < given.today else f"is not valid before {begins}"
                yield Finding(path, f"{name}: {one.subject} {when}", "give the present root of your authority")
