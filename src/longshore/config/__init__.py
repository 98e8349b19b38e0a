"""The settings of every process (`settings`), and how they are read (`loading`)."""

from longshore.config.loading import KEYS, as_text, load, parse_seconds, value_of
from longshore.config.settings import (
    DEFAULT_STORE,
    FRONTEND_PORT,
    HTTP_OFF,
    LOST_VARIABLES,
    PREFIX,
    Config,
    DispatcherSettings,
    GatewaySettings,
    WorkerSettings,
    http_address,
    is_loopback,
    reachable,
)

__all__ = [
    "DEFAULT_STORE",
    "FRONTEND_PORT",
    "HTTP_OFF",
    "KEYS",
    "LOST_VARIABLES",
    "PREFIX",
    "Config",
    "DispatcherSettings",
    "GatewaySettings",
    "WorkerSettings",
    "as_text",
    "http_address",
    "is_loopback",
    "load",
    "parse_seconds",
    "reachable",
    "value_of",
]
