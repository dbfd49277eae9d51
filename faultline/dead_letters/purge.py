"""Deletes the letters before a time or an offset, for good, with Kafka's DeleteRecords."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import RecordsToDelete

from faultline.dead_letters.counting import Groups
from faultline.dead_letters.letter import Letter
from faultline.dead_letters.reading import Span, forwards, spans
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.model.clock import rfc3339
from streams.model.errors import BadInput


@dataclass(frozen=True, slots=True)
class Loss:
    """What a purge deletes: the spans, and what lies in them."""

    spans: tuple[Span, ...]
    groups: Groups


async def loss(
    client: AIOKafkaConsumer,
    settings: KafkaSettings,
    *,
    before: datetime | None = None,
    before_offset: tuple[int, int] | None = None,
) -> Loss:
    """What would be deleted: all that was written before a time, or before an offset of one partition.

    Raises:
        BadInput: when there is no such partition, the offset is beyond its end, or the broker cannot search by time.
    """
    log_ends = {span.place: span.end for span in await spans(client, settings)}
    within = await spans(client, settings, until=before)
    if before_offset is not None:
        partition, offset = before_offset
        within = [span for span in within if span.place.partition == partition]
        if not within:
            raise BadInput(f"dead-letters has no partition {partition}")
        if offset > within[0].end:
            raise BadInput(f"partition {partition} ends at offset {within[0].end}")
        within = [Span(within[0].place, within[0].begin, max(within[0].begin, offset))]
    ends = {span.place.partition: span.end for span in within}
    groups = Groups()
    # To the end of the log: whether a letter was written back stands behind it.
    async for found in forwards(client, [replace(span, end=log_ends[span.place]) for span in within]):
        if isinstance(found, Letter) and found.offset >= ends[found.partition]:
            continue
        if before is not None and isinstance(found, Letter) and found.at >= before:
            # Kafka tells the first offset of that time, or none where all are older. One that does not search tells none, too.
            raise BadInput(
                f"this broker does not search by time: {found.coordinates} is of {rfc3339(found.at)}; give an offset"
            )
        groups.add(found)
    return Loss(tuple(span for span in within if span.end > span.begin), groups)


async def purge(settings: KafkaSettings, lost: Loss) -> None:
    """Delete what `loss` told of, and no more, whatever was written since.

    Raises:
        Unreachable: when no broker answers.
        KafkaError: when the broker refuses.
    """
    if not lost.spans:
        return
    admin = clients.admin(settings)
    try:
        await clients.started(admin, settings)
        await admin.delete_records({span.place: RecordsToDelete(span.end) for span in lost.spans})
    finally:
        await admin.close()
