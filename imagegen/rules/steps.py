"""The rules for options of the operator's own steps. Pure."""

from collections.abc import Iterator

from imagegen.config.problems import nearest
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule


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
