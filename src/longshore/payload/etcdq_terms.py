"""What a document of the Etcd Job Queue may ask of a container, and what of it means nothing here.

A document that was shown has the engine's own description of the container. It must be possible to
submit it again, so what every container of Longshore has is no request, and neither is what its
image or its engine added; by its labels it is known that it was shown. All else that would change
the job is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from longshore.errors import InvalidInput

NANO: Final = 1_000_000_000
NO_NETWORK: Final = "none"
NETWORKED: Final = ("default", "bridge")

_TAKEN: Final = frozenset(
    {"Image", "Cmd", "Entrypoint", "Env", "User", "WorkingDir", "Memory", "NetworkDisabled"}
)
_MEANINGLESS: Final = frozenset(
    {"Hostname", "Domainname", "AttachStdin", "AttachStdout", "AttachStderr", "Labels", "OnBuild"}
)
"""What a job of ours has otherwise, and what no program notices."""
_OF_IMAGE: Final = frozenset({"ExposedPorts", "Healthcheck", "Shell", "StopSignal", "Volumes"})
"""What the image of a container that was shown has added: it will do so again."""

_HOST_TAKEN: Final = frozenset({"Memory", "NanoCpus", "PidsLimit"})
_HOST_MEANINGLESS: Final = frozenset(
    {"AutoRemove", "ConsoleSize", "ContainerIDFile", "LogConfig", "MaskedPaths", "ReadonlyPaths"}
)
_EVERY: Final[dict[str, tuple[object, ...]]] = {
    "CgroupnsMode": ("private",),
    "IpcMode": ("private", "shareable"),
    "Isolation": ("default",),
    "NetworkMode": (NO_NETWORK, *NETWORKED),
    "RestartPolicy": tuple({"Name": name, "MaximumRetryCount": 0} for name in ("", "no")),
    "Runtime": ("runc",),
    "SecurityOpt": (["no-new-privileges"], ["no-new-privileges:true"]),
    "ShmSize": (64 * 1024**2,),
}
"""What every container has, whatever a document says."""
_OF_ENGINE: Final = frozenset(
    {"CapDrop", "CgroupParent", "MemorySwap", "OomScoreAdj", "Runtime", "ShmSize"}
)
"""What the engine of a container that was shown has added."""

_SHOWN_BY: Final = "longshore.job"
_OWN_TARGETS: Final = ("/work", "/longshore")


def was_shown(config: Mapping[str, Any]) -> bool:
    """Whether a document was shown by Longshore: its container had Longshore's labels."""
    return bool(_job_of(config))


def check_terms(config: Mapping[str, Any], host: Mapping[str, Any]) -> None:
    """Raises `InvalidInput` that names what a container cannot have."""
    known = _TAKEN | _MEANINGLESS | (_OF_IMAGE if was_shown(config) else frozenset())
    unknown = [key for key, value in config.items() if value and key not in known]
    if unknown:
        raise InvalidInput(
            f"Container.Config.{unknown[0]} is not possible here; a container has "
            f"{', '.join(sorted(_TAKEN))}"
        )
    for key, value in host.items():
        if value and not _may_say(key, value, config, host):
            raise InvalidInput(
                f"Container.HostConfig.{key} is not possible here: a container gets "
                f"{', '.join(sorted(_HOST_TAKEN))} and a network, but no privileges, no folders, "
                "no devices and no namespaces of the machine"
            )
    one, other = config.get("Memory"), host.get("Memory")
    if one and other and one != other:
        raise InvalidInput(f"Container has two limits of Memory, {one!r:.50} and {other!r:.50}")


def _may_say(key: str, value: object, config: Mapping[str, Any], host: Mapping[str, Any]) -> bool:
    if key in _HOST_TAKEN or key in _HOST_MEANINGLESS or value in _EVERY.get(key, ()):
        return True
    if key == "MemorySwap":
        return value == host.get("Memory")
    job = _job_of(config)
    if not job:
        return False
    if key in ("Mounts", "Binds") and isinstance(value, list):
        return all(_is_own_folder(one, job) for one in value)
    return key in _OF_ENGINE


def _job_of(config: Mapping[str, Any]) -> str:
    labels = config.get("Labels")
    job = labels.get(_SHOWN_BY) if isinstance(labels, dict) else None
    return job if isinstance(job, str) else ""


def _is_own_folder(mount: object, job: str) -> bool:
    """Whether a mount is a folder that each attempt has. Secrets are none: one asks for them."""
    if isinstance(mount, dict):
        source, target = mount.get("Source"), mount.get("Target")
    else:
        source, target, *_ = (*str(mount).split(":"), "")
    return target in _OWN_TARGETS and job in str(source)
