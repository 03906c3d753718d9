"""What `imagegen init` asks about the toy cloud."""

from typing import Final

from imagegen.providers.questions import CloudQuestions, Question
from toy_cloud.settings import TITLE

QUESTIONS: Final = CloudQuestions(
    title=TITLE,
    questions=(Question("street", ("street",), "Street of the machine", "Toy: the street.", "main"),),
    text="  toy:\n    street: {street}\n",
)
