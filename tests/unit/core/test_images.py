"""Names of images: what they mean, and that nothing else goes into an engine's addresses."""

from __future__ import annotations

import pytest

from longshore.core.images import ImageName, parse_image
from longshore.errors import InvalidInput

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("alpine", ImageName("docker.io", "library/alpine")),
        ("alpine:3.20", ImageName("docker.io", "library/alpine", "3.20")),
        ("team/trainer:1", ImageName("docker.io", "team/trainer", "1")),
        ("docker.io/alpine", ImageName("docker.io", "library/alpine")),
        ("localhost/tools", ImageName("localhost", "tools")),
        ("127.0.0.1:5000/tools:1", ImageName("127.0.0.1:5000", "tools", "1")),
        ("ghcr.io/a/b/c:v1", ImageName("ghcr.io", "a/b/c", "v1")),
        (f"ghcr.io/a/b@{DIGEST}", ImageName("ghcr.io", "a/b", "", DIGEST)),
        (f"ghcr.io/a/b:1@{DIGEST}", ImageName("ghcr.io", "a/b", "1", DIGEST)),
        (DIGEST, ImageName(id=DIGEST)),
    ],
)
def test_a_name_has_a_registry_a_repository_and_a_version(text: str, name: ImageName) -> None:
    assert parse_image(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        " alpine",
        "alpine\n",
        "Alpine",
        "../containers",
        "a/../../containers/json",
        "alpine/json?x=1",
        "alpine#1",
        "alpine%2fjson",
        "alpine:",
        "alpine:3 20",
        "alpine@sha256:ab",
        "http://example.com/alpine",
        "a" * 501,
        "аlpine",  # the first letter is Cyrillic
    ],
)
def test_what_is_no_name_is_refused_and_an_example_given(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"no name of an image; write it like alpine"):
        parse_image(text)


def test_an_image_without_a_version_is_the_latest_and_not_all_of_them() -> None:
    assert parse_image("alpine").version == "latest"
    assert parse_image("alpine:3").version == "3"
    assert parse_image(f"alpine:3@{DIGEST}").version == DIGEST


def test_an_image_named_by_its_id_comes_from_nowhere() -> None:
    assert parse_image(DIGEST).source == ""
    assert parse_image("alpine").source == "docker.io/library/alpine"
