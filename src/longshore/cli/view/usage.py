"""What attempts used, in words."""

from __future__ import annotations

from longshore.core.resources import shown
from longshore.model.usage import Peak, Usage


def usage_words(used: Usage | Peak | None) -> str:
    """What an attempt used, or those of a kind at most."""
    if used is None:
        return ""
    memory = shown("memory", used.memory_bytes)
    return f"{memory}, cpu {used.cpu_s:.3g} s"
