"""What `imagegen init` asks about AWS."""

from typing import Final

from imagegen.providers.aws.settings import TITLE
from imagegen.providers.questions import CloudQuestions, Question

_TEXT: Final = """\
  aws:
    region: {region}
    network:
      # Who reaches the builder's WinRM port while the image is built: where Packer runs, and nobody else.
      allowed_cidrs: {cidrs}
    # Regions that get a copy:
    # publish:
    #   regions: [us-west-2]
"""

QUESTIONS: Final = CloudQuestions(
    title=TITLE,
    questions=(
        Question(
            name="region",
            path=("region",),
            prompt="AWS region to build in",
            help="AWS: the region to build in.",
            example="us-east-1",
        ),
    ),
    text=_TEXT,
)
