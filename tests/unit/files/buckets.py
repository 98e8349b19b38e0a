"""A bucket of S3 for tests: moto's server answers for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def bucket_of_its_own() -> Iterator[str]:
    """The URL of a bucket. Meanwhile the environment says where S3 is."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        # All servers of a process have the same buckets, but not the same address.
        name = f"longshore-{uuid4()}"
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
        yield f"s3://{name}"
    server.stop()
