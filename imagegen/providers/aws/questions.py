"""What `imagegen init` asks about AWS."""

from typing import Final

from imagegen.providers.aws.settings import TITLE
from imagegen.providers.questions import Addition, CloudQuestions, Question

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
    additions=(
        Addition(
            "ecr",
            "the credential provider of Amazon Elastic Container Registry",
            "credential_providers:",
            """\
  # Take the newest patch of your Kubernetes minor.
  - name: ecr-credential-provider
    url: https://artifacts.k8s.io/binaries/cloud-provider-aws/v{minor}.0/windows/amd64/ecr-credential-provider-windows-amd64
    match_images: ["*.dkr.ecr.*.amazonaws.com", "*.dkr.ecr-fips.*.amazonaws.com", "public.ecr.aws"]
""",
        ),
    ),
)
