"""The settings of every process (`settings`), and how they are read (`loading`)."""

from longshore.config.addresses import is_loopback, reachable
from longshore.config.file_settings import FileSettings
from longshore.config.gateway_settings import GatewaySettings
from longshore.config.loading import (
    KEYS,
    TOKEN_VARIABLE,
    as_text,
    load,
    parse_seconds,
    value_of,
)
from longshore.config.settings import (
    DEFAULT_HTTP,
    DEFAULT_STORE,
    FRONTEND_PORT,
    HTTP_OFF,
    LOST_VARIABLES,
    PREFIX,
    Config,
    DispatcherSettings,
    WorkerSettings,
    callback_terms,
    http_address,
)

__all__ = [
    "DEFAULT_HTTP",
    "DEFAULT_STORE",
    "FRONTEND_PORT",
    "HTTP_OFF",
    "KEYS",
    "LOST_VARIABLES",
    "PREFIX",
    "TOKEN_VARIABLE",
    "Config",
    "DispatcherSettings",
    "FileSettings",
    "GatewaySettings",
    "WorkerSettings",
    "as_text",
    "callback_terms",
    "http_address",
    "is_loopback",
    "load",
    "parse_seconds",
    "reachable",
    "value_of",
]
