"""The correlator's measures of time, with where they come from. All of them in event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from streams.config.settings import CorrelatorSettings


@dataclass(frozen=True, slots=True)
class Config:
    """How long things are waited for, looked back on and kept."""

    retention: timedelta = timedelta(minutes=45)
    """Longer than the longest collective timeout (30 min before PyTorch 2.2) with the heartbeat on top."""
    before: timedelta = timedelta(minutes=5)
    """A cause may lie this long before the collective that hangs of it."""
    read_again: timedelta = timedelta(minutes=15)
    """Lines so old when they are read come from a log that is read again. All that a node's tells is one question."""
    outlived: timedelta = timedelta(minutes=2)
    """A job that makes progress so long after a fault's last sign was not stopped by it (drivers, kubelets: `lag`)."""
    skew: timedelta = timedelta(seconds=5)
    """Clocks of switches and hosts differ by this much."""
    scrape: timedelta = timedelta(seconds=60)
    """A counter shows a storm at its next scrape."""
    linger: timedelta = timedelta(minutes=2)
    """Evidence within this after the end of an incident belongs to it; later evidence is a new incarnation."""
    flap_quiet: timedelta = timedelta(minutes=10)
    """The same for an incident that ended and began again already: it stays open while it may go on flapping, with one run."""
    hang_settle: timedelta = timedelta(seconds=20)
    """A culprit is named from watchdogs alone only when no report came for this long, or every rank has reported."""
    doubt_settle: timedelta = timedelta(seconds=60)
    """The same where the culprit is only likely: watchdogs of one hang may speak as far apart as its ranks came to wait, and
    before PyTorch 2.5 a rank was given a minute to write down what it knew (TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC)."""
    missed_late: timedelta = timedelta(minutes=6)
    """Slurm sets a node down that has not answered for five minutes (SlurmdTimeout), and names the job that it held."""
    restart_settle: timedelta = timedelta(minutes=2)
    """Processes that only ended open an incident if their job did not start again within this."""
    application_settle: timedelta = timedelta(seconds=10)
    node_settle: timedelta = timedelta(seconds=30)
    """NotReady must last this long: a kubelet that restarts is no incident."""
    node_blip: timedelta = timedelta(seconds=240)
    """One node that is back within this has blipped (a busy API server, a late lease; Kubernetes gives a node up after 300 s): it
    is told only when a job suffers, when it is certain that the node is dead, or when it goes on blipping."""
    storm_settle: timedelta = timedelta(seconds=5)
    """The line that ends a storm may be this much later than the one that reported it."""
    storm_alone: timedelta = timedelta(seconds=30)
    """The same where only the switch's log reports it: a shipper may hold that line back for half a minute, and a host cordoned
    for a storm that was over costs more than one found half a minute later."""
    storm_weak: timedelta = timedelta(minutes=2)
    """A storm of which nobody can be named is told only when it lasts so long, or a job suffers from it: most are over before,
    and a switch's log may be read a minute late."""
    brief_storm: timedelta = timedelta(seconds=1)
    """A storm restored within this is a burst, not a storm. Switches that log whole seconds are given one more."""
    together: timedelta = timedelta(seconds=10)
    """The same code on several nodes of a job within this comes from the job."""
    board: timedelta = timedelta(minutes=2)
    """GPUs of one node that fail within this fail of one cause."""
    episode_gap: timedelta = timedelta(minutes=1)
    quiet: timedelta = timedelta(minutes=5)
    """Application faults of one job further apart are two."""
    storm_join: timedelta = timedelta(seconds=90)
    """Storms that begin within this are one: a switch reports its own at once, a host's counters show it a scrape later."""
    link_settle: timedelta = timedelta(seconds=25)
    """A link that is back sooner has bounced (gpud, ib flap: what was down for 25 s counts as down)."""
    link_alone: timedelta = timedelta(minutes=2)
    """A link that is down is told only when it lasts so long, or a job suffers from it: the line that says it is up again may be
    shipped half a minute late."""
    shut_takes: timedelta = timedelta(minutes=2)
    """A port goes down so soon after somebody ordered it: where a change is entered first and applied then, a minute passes."""
    link_quiet: timedelta = timedelta(minutes=10)
    """A link that fails again within this fails of the same cause (gpud, ib drop: kept for 10 min after recovery)."""
    link_again: timedelta = timedelta(hours=1)
    """The same for a link that has flapped: a dirty connector is well for half an hour, and no new fault after it."""
    connection_loss: timedelta = timedelta(seconds=45)
    """A connection over a lost link is given up within this (NCCL, RETRY_EXC after 0.5 to 30 s by its version, and the skew);
    an error line may come later where NCCL_IB_TIMEOUT is raised, a collective that began later has another reason."""
    flaps: int = 3
    """A link that went down so often flaps (gpud, ib flap)."""
    leaf_window: timedelta = timedelta(seconds=60)
    """Links of one switch that fail within this fail of one cause (a switch is known to be down after two probes of 30 s)."""
    leaf_neighbours: int = 3
    """Hosts and switches that lose their link to one switch together, from which on it is the switch."""
    ports_a_host: int = 8
    """As many ports of one switch whose other ends are not known may all be one host's: hosts are counted, never ports."""
    spine_alone: timedelta = timedelta(minutes=20)
    """A switch that only other switches miss, and a cable between two, is told when it lasts so long, or a job suffers: a restart
    takes a quarter hour, and so does moving a cable."""
    switch_notice: timedelta = timedelta(minutes=15)
    """Links lost so soon after somebody ordered work on a switch are lost by it (`reload in 10`, an image to install first)."""
    switch_back: timedelta = timedelta(minutes=30)
    """A switch that somebody reloads or upgrades is back within this; large ones and upgrades of firmware take a quarter hour."""
    switch_orders: timedelta = timedelta(hours=6)
    """How long such an order is remembered: links that flap after it are kept for longer than other lines."""
    partition_refused: timedelta = timedelta(minutes=5)
    """So soon after ports left a partition what they still send in it is refused, and their own table of keys is changed."""
    somewhere_neighbours: int = 5
    """The same where the hosts' switch is unknown: then only links that stay down count, for in a large cluster some
    link bounces every minute."""
    leaf_share_up: float = 0.75
    """A switch is well when this share of the links it took away is up again."""
    rebooted_share: float = 0.5
    """Of hosts that several switches lost at once: when this share was booted anew, it was the hosts that were gone."""
    notice_lead: timedelta = timedelta(hours=24)
    """What a cloud announces for later than this is listed, and told when so much is left: until then nobody has to act on it."""
    progress_every: timedelta = timedelta(seconds=5)
    """How often a job's progress is published while a run verifies that it goes on."""
    progress_mitigating: timedelta = timedelta(seconds=30)
    """The same while its run is in progress or waits for approval. Otherwise nobody waits for progress."""
    detail_every: timedelta = timedelta(minutes=2)
    """How often an incident is published for what changes no decision: more lines of what is known, another candidate."""
    growth_every: timedelta = timedelta(seconds=15)
    """The same for what many nodes share, while only its numbers and its list of nodes grow."""
    stale: timedelta = timedelta(hours=6)
    """A hang or application incident without an end or further evidence is resolved after this."""
    slack: timedelta = timedelta(seconds=15)
    """A pod's end and its node's last lines come from different clocks."""
    removal: timedelta = timedelta(minutes=2)
    """What ends within this after pods of its job were asked to go ends for that (their grace period is 30 s by default)."""
    same_pods_gap: timedelta = timedelta(minutes=10)
    """Reports of the same pods this far apart still belong to one hang: aborting takes its time."""
    judged_at_once: int = 500
    """So many sightings of jobs are evaluated with any batch, however small; a failing job of 32 nodes has about that many.
    Jobs that have more together wait for the next tick, which few decisions about a job precede anyway."""
    judged_per_signal: int = 1
    """A large batch adds so many sightings to evaluate for each of its own."""
    prune_every: timedelta = timedelta(minutes=1)
    bases_kept: timedelta = timedelta(days=30)

    @classmethod
    def of(cls, settings: CorrelatorSettings) -> Config:
        """The measures that are open to settings, the rest as they are."""
        return cls(
            retention=timedelta(minutes=settings.retention_minutes),
            hang_settle=timedelta(seconds=settings.hang_settle_s),
            application_settle=timedelta(seconds=settings.application_settle_s),
            node_settle=timedelta(seconds=settings.node_settle_s),
            notice_lead=timedelta(seconds=settings.notice_lead_s),
        )
