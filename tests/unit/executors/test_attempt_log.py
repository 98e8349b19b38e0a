"""What an attempt says, apart from what its program prints."""

from __future__ import annotations

from uuid import UUID

from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.log import ENGINE, LogLimits, unpack_line


def test_a_document_is_never_cut() -> None:
    log = AttemptLog(UUID(int=1), 7, lambda log: None, limits=LogLimits(line_bytes=100))
    text = "0123456789" * 25
    log.document(ENGINE, text)
    lines = [unpack_line(entry.data) for entry in log.take()]
    assert [len(line.text) for line in lines] == [100, 100, 50]
    assert "".join(line.text for line in lines) == text
    assert {line.stream for line in lines} == {ENGINE}
