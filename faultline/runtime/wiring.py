"""Composition root: builds each process from settings; the only module that imports every package.

Each process imports only the packages it needs. With all of them, the detector would take twice as long to start and keep the
clients of Kubernetes, Slack and Jira in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import structlog

from faultline.runtime.config_set import ConfigSet
from faultline.runtime.reload import LiveConfig
from faultline.runtime.settings import Settings
from streams.model.crash_points import CrashHook, ignore
from streams.model.errors import ConfigError
from streams.model.pulse import Pulse
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

Work = Callable[[Pulse, Metrics], Awaitable[None]]


def work_of(name: str, settings: Settings, *, at: CrashHook = ignore, live: LiveConfig | None = None) -> Work:
    """The work of one process, ready to be started; `name` is a key of `PROCESSES`.

    `at` is called with the name of each point at which a crash would matter. `live` is what it shares with a reloader.
    """
    makers: dict[str, Callable[[Settings, Pulse, Metrics, CrashHook], Awaitable[None]]] = {
        "detector": _detector,
        "inventory": _inventory,
        "correlator": _correlator,
        "responder": partial(_responder, live=live or LiveConfig()),
        "chat": _chat,
        "notifier": _notifier,
        "gateway": _gateway,
        "archive": _archive,
    }
    make = makers[name]
    return lambda pulse, metrics: make(settings, pulse, metrics, at)


async def _detector(settings: Settings, pulse: Pulse, metrics: Metrics, at: CrashHook) -> None:
    from streams.detect.process import DetectorProcess

    await DetectorProcess(
        settings.kafka, settings.detector, cluster=settings.cluster, pulse=pulse, metrics=metrics, at=at
    ).run()


async def _inventory(settings: Settings, pulse: Pulse, metrics: Metrics, _at: CrashHook) -> None:
    from connectors.kubernetes.client import Cluster
    from connectors.kubernetes.watch import KindWatches, WatchPace
    from connectors.slurm.watch import Together
    from streams.inventory.names import NodeLabels, names
    from streams.inventory.process import InventoryProcess
    from streams.inventory.workloads import Classifier
    from streams.model.watch import Watches

    wanted = settings.inventory
    async with AsyncExitStack() as stack:
        kinds = ("v1/Node", "v1/Pod", *wanted.job_kinds)
        own = NodeLabels(
            leaf=wanted.leaf_labels,
            rack=wanted.rack_labels,
            nvlink_domain=wanted.nvlink_domain_labels,
            parts=wanted.part_labels,
            protected=wanted.protected_labels,
            host_names=wanted.host_name_labels,
            work=wanted.maintenance_marks,
        )
        labels = names().node_labels.after(own)
        asked_for = wanted.job_kinds if "job_kinds" in wanted.model_fields_set else ()
        watches: list[Watches] = []
        if not settings.slurm.alone:
            cluster = await stack.enter_async_context(await Cluster.connect(settings.kubernetes))
            pace = WatchPace(relist_s=wanted.relist_s, page_size=wanted.page_size)
            watches.append(KindWatches(cluster, kinds, pace=pace))
        if settings.slurm.on:
            from connectors.slurm.systems import slurm_watch
            from streams.inventory.slurm import SlurmFacts

            reach = settings.slurm
            facts = SlurmFacts(settings.cluster, reach.partitions, requeues=reach.commands)
            watches.append(slurm_watch(reach, facts, stack))
        await InventoryProcess(
            settings.cluster,
            settings.kafka,
            watches[0] if len(watches) == 1 else Together(*watches),
            topology_file=wanted.topology_file,
            lldp_folder=wanted.lldp_folder,
            labels=labels,
            classifier=Classifier(wanted.training_labels, asked_for),
            asked_for=asked_for,
            selector=wanted.node_selector,
            pulse=pulse,
            metrics=metrics,
        ).run()


async def _correlator(settings: Settings, pulse: Pulse, metrics: Metrics, _at: CrashHook) -> None:
    from streams.correlate import Config, Engine
    from streams.correlate.process import Correlator

    config = Config.of(settings.correlator)
    await Correlator(
        settings.kafka,
        settings.correlator,
        lambda cluster, rows: Engine(cluster, rows, config),
        pulse=pulse,
        metrics=metrics,
    ).run()


async def _responder(
    settings: Settings, pulse: Pulse, metrics: Metrics, at: CrashHook, *, live: LiveConfig
) -> None:
    from connectors.base import Connector
    from connectors.jobs.checkpoint_requests import CheckpointRequests
    from connectors.jobs.training import TrainingJobs
    from connectors.kubernetes.client import Cluster
    from connectors.kubernetes.node_work import NodeWork, diagnostics_of, read_templates
    from connectors.kubernetes.node_work_objects import TemplatedObjects
    from connectors.kubernetes.node_work_pairs import PairDiagnosis
    from connectors.kubernetes.nodes import NodeConnector
    from connectors.kubernetes.pod_evidence import PodEvidence
    from connectors.kubernetes.spares import Spares
    from connectors.kubernetes.work_diagnostics import read_diagnostic
    from connectors.kubernetes.work_object_templates import objects_of
    from connectors.power.power_cycle import PowerCycle
    from connectors.power.work_hook import WorkHook
    from connectors.tickets.systems import ticket_desk
    from faultline.runtime.runbook_files import of_responder
    from runbooks.engine.partition_worker import DecidingBy
    from runbooks.engine.process import Responder
    from streams.inventory.node_work import node_work

    runbooks = of_responder(settings.responder)
    templates, diagnostics = read_templates(settings.node_work), diagnostics_of(settings.node_work)
    objects = objects_of(settings.node_work)
    async with AsyncExitStack() as stack:
        connectors: list[Connector] = []
        if not settings.slurm.alone:
            cluster = await stack.enter_async_context(await Cluster.connect(settings.kubernetes))
            connectors += [
                NodeConnector(cluster, slinky=settings.slurm.slinky),
                TrainingJobs(cluster),
                Spares(cluster),
            ]
            connectors.append(CheckpointRequests(cluster))
            if settings.evidence.hooks:
                connectors.append(PodEvidence(cluster, settings.evidence))
            work, others = settings.node_work, partial(node_work, own=settings.inventory.maintenance_marks)
            if templates or diagnostics:
                connectors.append(NodeWork(cluster, work, templates, diagnostics=diagnostics, others=others))
            if objects:
                connectors.append(TemplatedObjects(cluster, work, objects, others=others))
            if work.redfish.is_set:
                connectors.append(PowerCycle(cluster, work, others=others))
            if work.hook.url is not None:
                hook = WorkHook(cluster, work, others=others)
                stack.push_async_callback(hook.close)
                connectors.append(hook)
            if work.pairs is not None:
                pairs = read_diagnostic(work.pairs, "node_work.pairs")
                connectors.append(PairDiagnosis(cluster, work, pairs))
        if settings.slurm.on:
            from connectors.slurm.systems import with_slurm

            connectors = with_slurm(settings.slurm, connectors, stack)
        desk = ticket_desk(settings.tickets, settings.jira, console_url=settings.console.public_url)
        if desk is not None:
            stack.push_async_callback(desk.close)
            connectors.append(desk)
        else:
            log.info("no ticket system configured (jira.base_url, tickets.system): ticket steps are skipped")
        responder = Responder(
            settings.kafka,
            settings.responder,
            connectors,
            runbooks,
            cluster=settings.cluster,
            pulse=pulse,
            metrics=metrics,
            at=at,
            config=live.version,
        )

        async def adopt(new: Settings, found: ConfigSet) -> Callable[[], None]:
            books = await asyncio.to_thread(of_responder, new.responder)
            return partial(responder.adopt, DecidingBy(books, new.responder, found.version))

        live.adopt = adopt
        await responder.run()


async def _chat(settings: Settings, pulse: Pulse, metrics: Metrics, at: CrashHook) -> None:
    from connectors.chat.slack import Slack
    from faultline.chat.job_owners import JobOwners
    from faultline.chat.process import Chat

    if settings.slack.token is None:
        log.info("slack.token not set: chat disabled")
        await _idle(pulse)
    slack = Slack(settings.slack)
    try:
        await Chat(
            settings.kafka,
            slack,
            channel=settings.slack.channel,
            debounce_s=settings.slack.debounce_s,
            buttons=settings.slack.takes_answers,
            routes=settings.slack.routes,
            tenants=settings.responder.tenants,
            owners=JobOwners.load(settings.slack.owners_file) if settings.slack.tell_owners else None,
            lease_s=settings.responder.lease_s,
            pulse=pulse,
            metrics=metrics,
            at=at,
        ).run()
    finally:
        await slack.close()


async def _notifier(settings: Settings, pulse: Pulse, metrics: Metrics, at: CrashHook) -> None:
    from faultline.notify.process import Notifier
    from faultline.runtime.notice_sinks import open_sinks

    if not settings.notifier.sinks:
        log.info("notifier.sinks not set: nobody is paged or told outside the chat")
        await _idle(pulse)
    async with AsyncExitStack() as stack:
        await Notifier(
            settings.kafka,
            settings.notifier,
            open_sinks(settings, stack),
            console_url=settings.console.public_url,
            lease_s=settings.responder.lease_s,
            approval_expiry_s=settings.responder.approval_expiry_s,
            pulse=pulse,
            metrics=metrics,
            at=at,
        ).run()


async def _gateway(settings: Settings, pulse: Pulse, metrics: Metrics, _at: CrashHook) -> None:
    from faultline.gateway.process import Gateway
    from faultline.runtime.runbook_files import of_responder

    if settings.gateway.port == 0 and settings.slack.app_token is None:
        log.info("neither gateway.port nor slack.app_token is set: gateway disabled")
        await _idle(pulse)
    try:
        runbooks = of_responder(settings.responder)
    except ConfigError as error:
        # The responder refuses to start with these; the pages must open all the same, and then show the shipped ones.
        log.warning("the console shows the shipped runbooks only", reason=str(error))
        runbooks = None
    await Gateway(
        settings.kafka,
        settings.gateway,
        cluster=settings.cluster,
        slack=settings.slack,
        console=settings.console,
        runbooks=runbooks,
        pulse=pulse,
        metrics=metrics,
    ).run()


async def _archive(settings: Settings, pulse: Pulse, metrics: Metrics, at: CrashHook) -> None:
    if settings.archive.url is None:
        log.info("archive.url not set: nothing is archived")
        await _idle(pulse)
    from faultline.archive.needed import require_pyarrow

    require_pyarrow("archive.url")
    from faultline.archive.process import Archiver

    await Archiver(settings.kafka, settings.archive, pulse=pulse, metrics=metrics, at=at).run()


async def _idle(pulse: Pulse) -> None:
    """A disabled process: alive and ready, so that its probes pass, until it is stopped."""
    while True:
        pulse.ready()
        await asyncio.sleep(5)
