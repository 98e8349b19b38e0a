"""The certificate of a gateway: read again when its files change, and kept if they are broken."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path

import pytest

from longshore.errors import ConfigError
from longshore.gateway.certificates import Certificate


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A new certificate for 127.0.0.1 that signs itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", f"/CN={name}"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run([*words, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def shown(certificate: Certificate) -> bytes:
    """The certificate that a client gets, by a handshake in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_a_new_certificate_is_taken_when_its_files_change(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, "one")
    certificate = Certificate(str(cert), str(key))
    assert shown(certificate) == der(cert)
    other_cert, other_key = make_certificate(tmp_path, "two")
    other_key.replace(key)
    other_cert.replace(cert)
    certificate.look()
    assert shown(certificate) == der(cert)


def test_a_broken_new_certificate_is_told_once_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = make_certificate(tmp_path, "one")
    good = der(cert)
    certificate = Certificate(str(cert), str(key))
    other_cert, other_key = make_certificate(tmp_path, "two")
    for broken in (b"nonsense", other_cert.read_bytes(), b""):
        cert.write_bytes(broken)
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            certificate.look()
            certificate.look()
        assert len(caplog.records) == 1
        assert shown(certificate) == good
    cert.unlink()
    certificate.look()
    assert shown(certificate) == good
    cert.write_bytes(other_cert.read_bytes())
    other_key.replace(key)
    certificate.look()
    assert shown(certificate) == der(cert)


def test_one_file_may_hold_the_certificate_and_its_key(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, "one")
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    assert shown(Certificate(str(both), "")) == der(cert)


def test_what_is_no_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, "one")
    _, other = make_certificate(tmp_path, "two")
    for pair in ((cert, other), (key, key), (cert, tmp_path / "nowhere")):
        with pytest.raises(ConfigError, match="certificate"):
            Certificate(*map(str, pair))
