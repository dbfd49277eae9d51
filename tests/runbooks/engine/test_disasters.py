"""What a broker loses does not make anything happen twice: the cases of docs/disaster-recovery.md, on the real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from faultline.cli.main import cli
from faultline.cli.send_command import command_of, decide
from faultline.cli.send_options import SendOptions
from streams.config.settings import KafkaSettings
from streams.kafka import clients, installation, provisioning
from streams.kafka.topics import COMMANDS, CONTROLS, INCIDENTS, INSTALLATION, INVENTORY, RUNS, TIMELINE, Topic
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import ConfigError
from streams.model.facts import FactRecord
from streams.model.incident import IncidentState
from streams.model.run import RunState
from tests.runbooks.engine.test_responder import STEPS
from tests.runbooks.herd import PARTITION, Herd, calls, fresh, over, prepared
from tests.runbooks.scenes import CLUSTER, cluster
from tests.runbooks.topics import committed, committed_records, write
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]


async def deleted(settings: KafkaSettings, topic: Topic, *, made_again: bool = True) -> None:
    """Lose a topic with all that is in it, and make it again as `topics apply` would."""
    client = await clients.started(clients.admin(settings), settings)
    name = clients.topic_name(settings, topic)
    try:
        await client.delete_topics([name])

        async def is_gone() -> bool:
            (told,) = await client.describe_topics([name])
            return bool(told["error_code"])

        await eventually(is_gone, f"{name} is gone")
        if made_again:
            config = dict(topic.config(min_insync_replicas=1))
            await client.create_topics([NewTopic(name, 2, 1, topic_configs=config)])

            async def has_leaders() -> bool:
                (told,) = await client.describe_topics([name])
                return not told["error_code"] and all(p["leader"] >= 0 for p in told["partitions"])

            await eventually(has_leaders, f"{name} is there again")
    finally:
        await client.close()


async def forget_group(settings: KafkaSettings, process: str) -> None:
    """Lose the offsets of a group, as with `__consumer_offsets`."""
    client = AdminClient({"bootstrap.servers": settings.bootstrap})
    group = clients.group_name(settings, process)

    async def deleted_once_its_members_are_gone() -> bool:
        (future,) = client.delete_consumer_groups([group]).values()
        try:
            await asyncio.to_thread(future.result)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            return False
        return True

    await eventually(deleted_once_its_members_are_gone, f"the group {group} is deleted")


async def told(settings: KafkaSettings, event: str) -> list[TimelineEntry]:
    rows = [
        decode(TimelineEntry, value) for _, value in await committed(settings, TIMELINE, PARTITION) if value
    ]
    return [row for row in rows if row.event == event]


async def ended(herd: Herd, settings: KafkaSettings) -> Any:
    run = await eventually(lambda: over(settings), "the run is over", timeout_s=120)
    for child in herd.children:
        child.stop()
    return run


async def test_without_runs_an_incident_that_was_acted_on_is_left_to_people(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    about = fresh()
    settings = await prepared(kafka, about)
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    herd.start()
    assert (await ended(herd, settings)).state is RunState.SUCCEEDED
    before = calls(tmp_path)
    # As the correlator publishes it once it has heard of the run.
    acted_on = replace(
        about, state=IncidentState.MITIGATING, revision=about.revision + 1, updated_at=utc_now()
    )
    await write(settings, INCIDENTS, PARTITION, (about.id, encode(acted_on)))
    await deleted(settings, RUNS)
    herd.start()
    (entry, *_) = await eventually(lambda: told(settings, "run.none"), "it says why it does nothing")
    assert "runs were lost" in entry.text
    assert calls(tmp_path) == before, "nothing is done again"


async def test_a_cordon_without_its_run_is_left_alone_as_well(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    """The broker is an older copy: of the incident it has a revision from before the run, and the node carries the cordon."""
    about = fresh()
    settings = await prepared(kafka, about)
    node = cluster().nodes[about.root.node or ""]
    marked = replace(node, owner_incident=about.id, unschedulable=True)
    await write(settings, INVENTORY, PARTITION, (marked.key, encode(FactRecord(marked))))
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    herd.start()
    (entry, *_) = await eventually(lambda: told(settings, "run.none"), "it says why it does nothing")
    assert node.name in entry.text
    assert calls(tmp_path) == []


async def test_offsets_that_are_lost_do_nothing_twice(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    about = fresh()
    settings = await prepared(kafka, about)
    command = Command("cmd-1", "", CLUSTER, Verb.FREEZE, "ada", utc_now(), scope="pool:other")
    await write(settings, COMMANDS, PARTITION, (CLUSTER, encode(command)))
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    herd.start()
    await ended(herd, settings)
    assert Counter(call[1] for call in calls(tmp_path)) == dict.fromkeys(STEPS, 1)
    before = await committed(settings, CONTROLS, PARTITION)
    await forget_group(settings, "responder")
    herd.start()
    again = Command("cmd-2", "", CLUSTER, Verb.KILL, "ada", utc_now())
    await write(settings, COMMANDS, PARTITION, (CLUSTER, encode(again)))

    async def has_read_to_the_end() -> bool:
        values = [v for _, v in await committed(settings, CONTROLS, PARTITION) if v]
        return decode(Control, values[-1]).kill_switch is not None

    await eventually(has_read_to_the_end, "the command behind those that are read again counts")
    after = [decode(Control, v) for _, v in await committed(settings, CONTROLS, PARTITION) if v]
    assert len(after) == len(before) + 1, "the freeze that was read again is not a second one"
    assert [f.scope for f in after[-1].freezes] == ["pool:other"]
    assert Counter(call[1] for call in calls(tmp_path)) == dict.fromkeys(STEPS, 1)


@pytest.mark.parametrize("topic", [RUNS, INCIDENTS, CONTROLS, INSTALLATION], ids=lambda topic: topic.name)
async def test_no_process_starts_while_a_topic_is_missing(kafka: Kafka, topic: Topic) -> None:
    settings = kafka.settings("lost")
    await provisioning.apply(settings)
    await installation.claim(settings, "west", "a test")
    await provisioning.verify(settings)
    await deleted(settings, topic, made_again=False)
    with pytest.raises(ConfigError, match=f"{topic.name}: missing"):
        await provisioning.verify(settings)
    await provisioning.apply(settings)
    await provisioning.verify(settings)


async def test_a_lost_claim_is_made_again_by_whoever_starts_first(kafka: Kafka) -> None:
    settings = kafka.settings("claims")
    await provisioning.apply(settings)
    await installation.claim(settings, "west", "a test")
    await deleted(settings, INSTALLATION)
    assert await installation.read_claims(settings) == []
    await installation.claim(settings, "west", "the first process after it")
    with pytest.raises(ConfigError, match="belong to cluster west"):
        await installation.claim(settings, "east", "a wrong one")


async def test_a_copy_of_the_topics_on_another_kafka_is_refused_until_it_is_adopted(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MirrorMaker, a volume that was restored under a new id, or `kafka.bootstrap` that points at the wrong one."""
    here = kafka.settings("copied")
    await provisioning.apply(here)
    await installation.claim(here, "west", "topics apply")
    with Kafka.running(tmp_path) as other:
        there = here.model_copy(update={"bootstrap": other.bootstrap})
        await provisioning.apply(there)
        await mirrored(here, there, INSTALLATION)
        with pytest.raises(ConfigError, match="copy of them") as refused:
            await installation.claim(there, "west", "responder on a machine")
        assert "--adopt-kafka" in str(refused.value)
        with pytest.raises(ConfigError, match="copy of them"):
            await installation.refuse_others(there, "west")
        assert len(await installation.read_claims(there)) == 1, "who is refused writes nothing"
        freeze = command_of(Verb.FREEZE, "west", SendOptions("an operator", "a trial", 0, "table"))
        with pytest.raises(ConfigError, match="copy of them"):
            await decide(there, freeze, 0)
        assert [await committed_records(there, COMMANDS, n) for n in (0, 1)] == [[], []], (
            "nobody reads them there"
        )
        file = tmp_path / "there.yaml"
        values = there.model_dump(mode="json", exclude_unset=True)
        file.write_text(yaml.safe_dump({"cluster": "west", "kafka": values}))
        adopting = ["--config", str(file), "topics", "apply", "--adopt-kafka"]
        await asyncio.to_thread(cli.main, adopting, standalone_mode=False)
        former, now = await installation.kafka_id(here), await installation.kafka_id(there)
        assert f"bound to the Kafka cluster {now} from now on, no more to {former}" in capsys.readouterr().err
        await asyncio.to_thread(cli.main, adopting, standalone_mode=False)
        assert "nothing to adopt" in capsys.readouterr().err
        await installation.claim(there, "west", "responder on a machine")
        # The former one is refused there now, and goes on where it was.
        await installation.claim(here, "west", "responder on a machine")


async def mirrored(source: KafkaSettings, target: KafkaSettings, topic: Topic) -> None:
    place = TopicPartition(clients.topic_name(source, topic), 0)
    reader = await clients.started(clients.consumer(source, group=None), source)
    producer = await clients.started(clients.producer(target), target)
    try:
        async for batch in clients.batches_to_end(reader, place):
            for record in batch:
                await producer.send_and_wait(place.topic, record.value, key=record.key, partition=0)
    finally:
        await reader.stop()
        await producer.stop()
