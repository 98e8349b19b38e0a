"""The settings of gateways."""

from __future__ import annotations

from msgspec import Struct


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of a gateway."""

    http_hosts: tuple[str, ...] = ()
    """Names by which browsers and proxies may call a gateway, beside 127.0.0.1 and localhost."""

    http_auth: str = "auto"
    """Who needs a token over HTTP: `required` is everybody, `auto` nobody of this machine.

    Where other machines can reach the gateway, `auto` requires tokens, except if `http_insecure`.
    """

    http_board_token: str = ""
    """A file with the token by which the dashboard is shown to who has none: a board to read.

    Make the token with `longshore token create --role read --hide-payloads`. It is for pages only:
    the API asks everybody for a token as before.
    """

    http_tls_cert: str = ""
    """The file with the certificate for HTTPS, and its chain. Read again when it changes."""

    http_tls_key: str = ""
    """The file with the certificate's private key; empty if `http_tls_cert` holds it too."""

    http_insecure: bool = False
    """Whether other machines may reach a gateway that has no certificate, or asks for no token."""

    http_rate: int = 1_000
    """How many requests a second one token may make, in the long run; past it, it gets 429."""

    http_burst: int = 5_000
    """How many requests a token may make at once, after it has made none for a while."""

    max_header_bytes: int = 64 * 1024
    """The largest address and headers of a request."""

    max_body_bytes: int = 16 * 1024 * 1024
    """The largest body of a request, unpacked."""

    max_ndjson_bytes: int = 64 * 1024 * 1024
    """The largest body of a request that has a line for each job, or a message of the SDK."""

    max_bodies_bytes: int = 256 * 1024 * 1024
    """How many bytes of bodies a gateway holds at once; past it clients are told to try again."""

    body_s: float = 30.0
    """How long a gateway waits for the next bytes of a body."""

    max_page: int = 1_000
    """The most items on one page of a list."""

    max_http_requests: int = 10_000
    """How many requests may be under way, long polls and streams too."""

    max_streams: int = 2_000
    """How many streams of events may be open."""

    max_long_poll_s: float = 60.0
    """The longest that a request may wait for a result or a reply."""

    callback_slots: int = 100
    """How many callbacks a gateway sends at once."""

    keep_alive_s: float = 75.0
    """How long a connection without a request stays open."""

    http_drain_s: float = 10.0
    """How long requests under way may go on after SIGTERM."""

    stream_poll_s: float = 0.25
    """How often, at most, a gateway looks at what is streamed: when dispatchers tell of changes."""

    stream_idle_poll_s: float = 30.0
    """How often it looks although no dispatcher told of any."""

    web_ping_interval_s: float = 30.0
    """How often a gateway asks a web worker for its health."""

    web_max_retries: int = 3
    """After so many health checks in a row without a good answer a web worker counts as dead."""

    web_dead_ping_interval_s: float = 60.0
    """How often a gateway asks a dead web worker for its health."""

    web_remove_after: int = 5
    """After so many more health checks without a good answer a dead web worker is removed."""

    web_max_jobs: int = 1
    """How many jobs at once a web worker gets that does not say its maxJobs."""

    web_request_s: float = 10.0
    """How long a web worker may take to answer a request."""

    web_answer_bytes: int = 1024 * 1024
    """The largest answer of a web worker."""

    web_signatures: bool = False
    """Whether web workers must sign what they say."""

    web_adoption_s: float = 15.0
    """How long after the end of a gateway's lease another one may take to attend its web workers.

    So long, and `lease_s`, their jobs run on without a gateway.
    """

    web_attend_s: float = 1.0
    """How often a gateway asks dispatchers for web workers that no gateway attends."""

    stream_ping_s: float = 15.0
    """How often a stream without events sends a comment, so that nobody closes it as idle."""
