"""Makes the runner of containers, if what it needs is installed."""

from __future__ import annotations

from longshore.errors import ConfigError
from longshore.executors.frames import ProgramTerms
from longshore.executors.host.programs.runner import Runner
from longshore.model.program import Container


def container_runner(terms: ProgramTerms) -> Runner[Container]:
    """The runner of containers; raises `ConfigError` if the engine's client is not installed."""
    try:
        from longshore.executors.host.programs.container import ContainerRunner
        from longshore.executors.host.programs.engine import EngineTerms
    except ModuleNotFoundError as error:
        if error.name != "aiodocker":
            raise
        raise ConfigError(
            "containers need aiodocker, which is not installed; run: "
            "pip install 'longshore[containers]', or set engine to off"
        ) from None
    return ContainerRunner(
        EngineTerms(
            url=terms.engine,
            registries=terms.registries,
            grace_s=terms.grace_s,
            sweep_s=terms.sweep_s,
            worker=terms.worker,
            fleet=terms.fleet,
            gpus=terms.gpus,
        )
    )
