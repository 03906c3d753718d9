"""What `imagegen init` asks about Azure."""

from typing import Final

from imagegen.providers.azure.settings import TITLE
from imagegen.providers.questions import Addition, CloudQuestions, Question

_TEXT: Final = """\
  azure:
    location: {location}
    network:
      # Who reaches the builder's WinRM port while the image is built: where Packer runs, and nobody else.
      allowed_cidrs: {cidrs}
    # The gallery and the image definition must exist: Windows, generalized, generation 2.
    gallery:
      resource_group: {gallery_resource_group}
      name: {gallery}
      definition: {definition}
    # Regions that get a replica:
    # publish:
    #   regions: [westus3]
"""

QUESTIONS: Final = CloudQuestions(
    title=TITLE,
    questions=(
        Question(
            name="location",
            path=("location",),
            prompt="Azure region to build in",
            help="Azure: the region to build in.",
            example="eastus2",
        ),
        Question(
            name="gallery_resource_group",
            path=("gallery", "resource_group"),
            prompt="Resource group of the Azure Compute Gallery",
            help="Azure: the resource group of the gallery.",
            example="cluster-api-gallery",
            metavar="NAME",
        ),
        Question(
            name="gallery",
            path=("gallery", "name"),
            prompt="Name of the gallery",
            help="Azure: the Compute Gallery.",
            example="clusterapi",
            metavar="NAME",
        ),
        Question(
            name="definition",
            path=("gallery", "definition"),
            prompt="Image definition in the gallery",
            help="Azure: the image definition.",
            example="capi-win-2022-containerd",
            default="capi-win-{release}-containerd",
            metavar="NAME",
        ),
    ),
    text=_TEXT,
    additions=(
        Addition(
            "acr",
            "the credential provider of Azure Container Registry",
            "credential_providers:",
            """\
  # Take the newest patch of your Kubernetes minor. User data writes azure.json.
  - name: acr-credential-provider
    url: https://github.com/kubernetes-sigs/cloud-provider-azure/releases/download/v{minor}.0/azure-acr-credential-provider-windows-amd64.exe
    match_images: ["*.azurecr.io", "*.azurecr.cn", "*.azurecr.us"]
    args: ['C:\\k\\azure.json']
    cache: 10m
""",
        ),
        Addition("gmsa", "the plugin that reads the credentials of gMSAs from a key vault", "gmsa: {}"),
    ),
)
