"""The rules for the first boot, and for the options of the operator's own steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import table
from imagegen.config.problems import nearest
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec


_USER_DATA: Final = "UserDataPlugin"

# Accounts and groups that every Windows has; a new account cannot have one of these names.
_WINDOWS_OWN: Final = frozenset(
    {
        *("administrator", "guest", "defaultaccount", "wdagutilityaccount"),
        *("administrators", "guests", "users", "system", "everyone", "localservice", "networkservice"),
    }
)


# Settings that only these plugins read.
_READ_BY: Final[dict[YamlPath, tuple[str, ...]]] = {
    ("cloudbase_init", "user"): ("CreateUserPlugin", "SetUserPasswordPlugin", "SetUserSSHPublicKeysPlugin"),
    ("cloudbase_init", "groups"): ("CreateUserPlugin",),
    ("cloudbase_init", "real_time_clock_utc"): ("NTPClientPlugin",),
    ("host_names", "netbios_compatible"): ("SetHostNamePlugin",),
}


def _plugins(spec: Spec) -> set[str]:
    """The class names of a target's plugins."""
    return {name.rpartition(".")[2] for name in spec.plugins}


@rule("bootstrap-token-in-log", ERROR, "User data, which holds the bootstrap token, must not be written to a log")
def bootstrap_token_in_log(given: RuleInput) -> Iterator[Finding]:
    # The serial port gets the lines of the file: without debug, neither has user data or the output of its scripts.
    reads_user_data = any(_USER_DATA in _plugins(spec) for spec in given.specs.values())
    if reads_user_data and given.config.cloudbase_init.logging.debug:
        yield Finding(
            ("cloudbase_init", "logging", "debug"),
            "cloudbase-init would write user data to its log, including the token with which a node joins",
            "leave it out: errors are logged without it",
        )


@rule("user-data-plugin", WARNING, "cloudbase-init should have the plugin that reads user data")
def user_data_plugin(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            ("cloudbase_init", "plugins", spec.provider),
            "without the plugin for user data, Cluster API cannot make a node of the machine",
            f"add cloudbaseinit.plugins.common.userdata.{_USER_DATA} as the last plugin",
        )
        for spec in given.specs.values()
        if _USER_DATA not in _plugins(spec)
    ]


@rule("metadata-service-of-cloud", WARNING, "cloudbase-init should use the metadata service of the cloud")
def metadata_service_of_cloud(given: RuleInput) -> Iterator[Finding]:
    for spec in given.specs.values():
        path: YamlPath = ("cloudbase_init", "metadata_services", spec.provider)
        (service,) = spec.catalogue[path].value
        if service not in spec.metadata_services:
            yield Finding(
                path,
                f"the list has no {service.rpartition('.')[2]}, which reads the user data of this cloud",
                f"add {service}, unless one of your own services replaces it",
            )


@rule("first-boot-on-target", ERROR, "A list for a cloud requires that cloud among the targets")
def first_boot_on_target(given: RuleInput) -> list[Finding]:
    return [
        Finding(path, f"the image has no {path[-1]} target, so nothing reads this list", "leave it out")
        for path, _ in _lists(given)
        if path[-1] not in given.providers
    ]


@rule("first-boot-read-by-plugin", ERROR, "Each setting of cloudbase-init must be read by one of its plugins")
def first_boot_read_by_plugin(given: RuleInput) -> list[Finding]:
    listed = set[str]().union(*map(_plugins, given.specs.values()))
    return [
        Finding(
            path,
            f"no plugin in the list reads this setting; these do: {', '.join(readers)}",
            "leave it out, or add one of them to cloudbase_init.plugins",
        )
        for path, readers in _READ_BY.items()
        if path in given.document.lines and listed.isdisjoint(readers)
    ]


@rule("first-boot-user-of-cloud", WARNING, "cloudbase_init.user should have an effect on every target")
def first_boot_user_of_cloud(given: RuleInput) -> list[Finding]:
    clouds = table("cloudbase-init")["clouds"]
    return [
        Finding(
            ("cloudbase_init", "user"),
            f"on {spec.target} it has no effect: cloudbase-init creates the administrator that the machine is given",
            "leave it out, or ignore this if other targets need it",
        )
        for spec in given.specs.values()
        if ("cloudbase_init", "user") in given.document.lines and clouds[spec.provider].get("user_from_metadata")
    ]


@rule("first-boot-user", ERROR, "cloudbase_init.user must not be an account that exists already")
def first_boot_user(given: RuleInput) -> Iterator[Finding]:
    user = given.config.cloudbase_init.user
    clouds = [table("machines")["access"][cloud] for cloud in given.providers]
    builders = [cloud["cloud"] for cloud in clouds if cloud["build_account"] == user]
    if user in _WINDOWS_OWN:
        yield Finding(
            ("cloudbase_init", "user"),
            f"Windows already has an account or group {user}",
            "choose another name, for example capi",
        )
    elif builders:
        yield Finding(
            ("cloudbase_init", "user"),
            f"on {builders[0]}, {user} is the account of the build",
            "choose another name, for example capi",
        )


def _lists(given: RuleInput) -> list[tuple[YamlPath, list[str]]]:
    """The lists of plugins and metadata services in the config, with the cloud as the last part of the path."""
    cloudbase = given.config.cloudbase_init
    return [
        (("cloudbase_init", kind, cloud), listed)
        for kind, lists in (("plugins", cloudbase.plugins), ("metadata_services", cloudbase.metadata_services))
        for cloud, listed in lists
        if listed is not None
    ]


@rule(
    "step-option-known", ERROR, "step_options must name options that your own steps declare, with values of their type"
)
def step_option_known(given: RuleInput) -> Iterator[Finding]:
    all_options = given.config.step_options
    steps = given.steps() if all_options else {}
    for name, options in all_options.items():
        if name not in steps:
            yield Finding(("step_options", name), f"unknown step {name!r}", nearest(name, sorted(steps)))
            continue
        declared = steps[name].meta.options
        for option, value in options.items():
            path = ("step_options", name, option)
            if option not in declared:
                yield Finding(
                    path,
                    f"the step {name} has no option {option!r}",
                    nearest(option, sorted(declared)) if declared else "leave it out: this step has no options",
                )
            elif not declared[option].accepts(value):
                kind, example = declared[option].type, declared[option].example
                yield Finding(path, f"the option must have the type {kind}", f"for example {example!r}")


@rule("step-option-required", ERROR, "step_options must set every option that has no default")
def step_option_required(given: RuleInput) -> list[Finding]:
    all_options = given.config.step_options
    return [
        Finding(
            ("steps_path",),
            f"the step {name} requires the option {option!r}: {declared.description}",
            f"write step_options: {{{name}: {{{option}: {declared.example!r}}}}}",
        )
        for name, step in (given.steps() if given.config.steps_path else {}).items()
        for option, declared in step.meta.options.items()
        if declared.default is None and option not in all_options.get(name, {})
    ]
