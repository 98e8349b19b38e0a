"""The names of container images: what registry, repository, tag and digest a text means.

The grammar is that of Docker's references. A name goes into the addresses of an engine's API, so
whatever is none is refused.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from longshore.errors import InvalidInput

HUB: Final = "docker.io"
LATEST: Final = "latest"
MAX_NAME_CHARS: Final = 500

_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME: Final = re.compile(
    rf"(?:(?P<registry>localhost(?::[0-9]{{1,5}})?|(?=[^/]*[.:]){_HOST})/)?"
    rf"(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,128}))?",
    re.ASCII,
)
_ID: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ImageName(NamedTuple):
    """A name in parts. An image that is named by its id has nothing but the id."""

    registry: str = ""
    repository: str = ""
    tag: str = ""
    digest: str = ""
    id: str = ""

    @property
    def source(self) -> str:
        """From where it is pulled, without tag and digest; empty if it can only be present."""
        return f"{self.registry}/{self.repository}" if self.repository else ""

    @property
    def version(self) -> str:
        """Which one of its repository is meant: a digest or a tag."""
        return self.digest or self.tag or LATEST


def parse_image(text: str) -> ImageName:
    """The parts of an image's name; raises `InvalidInput` if it is none."""
    if _ID.fullmatch(text):
        return ImageName(id=text)
    found = _NAME.fullmatch(text) if len(text) <= MAX_NAME_CHARS else None
    if found is None:
        raise InvalidInput(
            f"{text!r:.100} is no name of an image; write it like alpine, trainer:1 or "
            "registry.example.com/team/trainer:1"
        )
    registry, repository = found["registry"] or HUB, found["repository"]
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    return ImageName(registry, repository, found["tag"] or "", found["digest"] or "")
