"""A first config: each answer is judged alone, and what is written is a whole config."""

from __future__ import annotations

import pytest

from imagegen.config.model import ImageConfig
from imagegen.config.schema import MODELINE
from imagegen.config.starter import Answers, answer_paths, find_problem, starter_text
from imagegen.config.yaml import parse_yaml
from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure.settings import Settings as AzureSettings
from imagegen.providers.questions import all_questions

AWS = {"region": "us-east-1"}
AZURE = {
    **{"location": "eastus2", "gallery_resource_group": "images(all)", "gallery": "gallery"},
    **{"definition": "2022-core"},
}
CIDRS = ("198.51.100.0/24", "203.0.113.7/32")


@pytest.mark.parametrize("clouds", [{"aws": AWS, "azure": AZURE}, {"aws": AWS}, {"azure": AZURE}])
@pytest.mark.parametrize("modeline", [True, False])
def test_starter_says_every_answer(clouds: dict[str, dict[str, str]], modeline: bool) -> None:
    answers = Answers("first", "2022", "1.36.4", "2.3.4", CIDRS, clouds, allow_eol=modeline)
    text = starter_text(answers, modeline=modeline)
    config = ImageConfig.model_validate(parse_yaml(text.encode(), "starter").data)
    assert (text.splitlines()[0] == MODELINE) is modeline
    assert (config.name, config.windows.release, config.kubernetes.version) == ("first", "2022", "1.36.4")
    assert config.allow_eol is modeline
    assert config.runtime.containerd is not None
    assert config.runtime.containerd.version == "2.3.4"
    targets = config.targets.named()
    assert list(targets) == list(clouds)
    if isinstance(aws := targets.get("aws"), AwsSettings):
        assert (aws.region, tuple(aws.network.allowed_cidrs)) == ("us-east-1", CIDRS)
    if isinstance(azure := targets.get("azure"), AzureSettings):
        gallery = azure.gallery
        said = [azure.location, gallery.resource_group, gallery.name, gallery.definition]
        assert (said, tuple(azure.network.allowed_cidrs)) == (list(AZURE.values()), CIDRS)


GOOD = {
    **{"name": "first", "release": "2022", "kubernetes": "1.36.4", "containerd": "2.3.4", "region": "us-east-1"},
    **{"location": "eastus2", "gallery_resource_group": "images", "gallery": "images", "definition": "win-2022"},
}


@pytest.mark.parametrize("question", sorted(answer_paths()))
def test_answers_are_judged_by_the_model(question: str) -> None:
    good = ["198.51.100.7/32"] if question == "allow_cidr" else GOOD[question]
    bad = ["anywhere"] if question == "allow_cidr" else "not / right"
    assert find_problem(question, good) is None
    assert "is not a valid" in (find_problem(question, bad) or ("",))[0]


def test_no_two_clouds_ask_by_the_same_option() -> None:
    questions = [question for cloud in all_questions().values() for question in cloud.questions]
    assert len({question.name for question in questions}) == len(questions)
    assert [question.name for question in questions if find_problem(question.name, question.example)] == []
