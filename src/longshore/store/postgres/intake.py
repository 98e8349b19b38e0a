"""What a batch on PostgreSQL takes in: jobs of ends, of turns and of clients, in this order."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.model.actor import Message
from longshore.model.ends import TurnTaken
from longshore.model.job import Refused, Submission, Submitted
from longshore.ports import Batch
from longshore.store.postgres.finish import FinishBatch
from longshore.store.postgres.submit import SubmitBatch


async def accept(
    records: FinishBatch, intake: SubmitBatch, batch: Batch, history: Sequence[Submission]
) -> tuple[list[Submitted | Refused], list[tuple[TurnTaken, Message]]]:
    """Takes in what ends sent, what hears of turns, then what was submitted; answers the latter.

    What cannot be stored is noted in the history of its sender. It answers what turns hear of it.
    """
    sent = [job for _, _, job in records.sent]
    if not sent and not history and not batch.submits:
        if records.refused:
            await records.note([])
        return [], []
    intake.note_sent([*sent, *history])
    answers = await intake.accept([*sent, *history, *batch.submits])
    if sent or records.refused:
        await records.note(answers[: len(sent)])
    submitted = answers[len(sent) + len(history) :]
    return submitted, records.lost_of_turns(answers[: len(sent)])
