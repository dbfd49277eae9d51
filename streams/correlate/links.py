"""Links: what a host and its switch say of one cable, put together into one fault of it.

A NIC goes by several names (`eth2`, `mlx5_2`, its PCI address, the switch port it hangs on). Names that one line or one cable
holds are the same NIC; links of one host that fail together fail of one cause. A link that came back at once is a bounce: it may
explain a job's error, and is no incident by itself. The third time it flaps (gpud, ib flap: three times down).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from streams.correlate.config import Config
from streams.correlate.families import families
from streams.correlate.hypotheses import Hypothesis
from streams.correlate.lives import Lives, Spell, spells
from streams.correlate.nodes import NOT_READY
from streams.correlate.rows import NodeRow, PortRow, in_maintenance
from streams.correlate.sightings import KEPT_EACH_END, Sighting, firing, order
from streams.model.entity import Entity
from streams.model.errors import ConfigError
from streams.model.incident import Certainty
from streams.model.inventory import NodeFact
from streams.model.signal import Attribute

LINK = "fabric.link"
FAMILY = "nic_link"
MAINTENANCE = "planned maintenance"

Part = Literal["down", "bounced", "device", "errors", "context"]
_FILE = Path(__file__).with_name("links.yaml")
_RDMA = re.compile(r"mlx[45]_|bnxt_re|irdma|hfi1_|qib|rocep|ibp")
_BROKEN: tuple[Part, ...] = ("down", "bounced", "device")


class Parts(BaseModel):
    """`links.yaml`: the part that each subtype plays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    down: frozenset[str]
    bounced: frozenset[str]
    device: frozenset[str]
    errors: frozenset[str]
    context: frozenset[str]
    elsewhere: frozenset[str]
    administrative: str

    def of(self, s: Sighting) -> Part:
        """The part of one sighting."""
        subtype = s.text("subtype")
        parts: tuple[Part, ...] = ("down", "bounced", "device", "context")
        return next((part for part in parts if subtype in getattr(self, part)), "errors")

    def is_intended(self, s: Sighting) -> bool:
        """Whether somebody took the link down on purpose."""
        words = f"{s.text('reason')} {s.text('status')}"
        return re.search(self.administrative, words) is not None


@cache
def parts() -> Parts:
    """The table that ships.

    Raises:
        ConfigError: when the file is damaged.
    """
    try:
        return Parts.model_validate(yaml.safe_load(_FILE.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{_FILE.name}: {error}") from error


def placed(s: Sighting) -> Sighting | None:
    """The sighting at the place it speaks of: that of a subnet's manager at a port, None where it names no place."""
    entity = s.entity
    if entity.switch or entity.nic or parts().elsewhere.isdisjoint(s.attributes):
        return s
    node, port = s.text("node"), s.text("port")
    return replace(s, entity=Entity(entity.cluster, switch=node, port=port)) if node and port else None


@dataclass(frozen=True, slots=True)
class Moment:
    """One sighting of one NIC, and when the trouble that it tells of was over (None while it lasts)."""

    sighting: Sighting
    part: Part
    nic: str
    """Which NIC, by the first of all its names; not for display."""
    name: Entity
    """The NIC or port as it is shown when this sighting names it."""
    start: datetime
    """When the spell began that the sighting belongs to."""
    end: datetime | None
    until: datetime | None = None
    """Up to when the trouble went on at least, where what was seen between the first and the latest sightings is forgotten."""

    @property
    def at(self) -> datetime:
        """The line's time."""
        return self.sighting.at

    @property
    def by_host(self) -> bool:
        """The host itself says so, and therefore lives."""
        return self.sighting.entity.switch is None


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A cable's or NIC's trouble from its first moment on; several NICs of one host when they failed together."""

    place: str
    """The scope it is judged in: `node/NAME` or `port/SWITCH/PORT`."""
    root: Entity
    incarnation: int
    moments: tuple[Moment, ...]
    context: tuple[Sighting, ...] = ()
    switches: frozenset[str] = frozenset()
    """The switches it hangs on, as far as anybody knows; labels of leaves count."""

    @property
    def start(self) -> datetime:
        """When the first trouble was seen."""
        return self.moments[0].at

    @property
    def last(self) -> datetime:
        """When the latest was."""
        return max(m.at for m in self.moments)

    @property
    def neighbour(self) -> str:
        """Who lost the link, seen from a switch."""
        return self.root.node or self.root.key

    @property
    def by_host(self) -> bool:
        """A host that says itself that its link is down has not lost its power."""
        return any(m.by_host and m.part == "down" for m in self.moments)

    def downs(self, skew: timedelta) -> list[datetime]:
        """Every time a link of it went down, host and switch counted once."""
        found: list[datetime] = []
        for m in self.moments:
            if m.part in ("down", "bounced") and (not found or m.at - found[-1] > skew):
                found.append(m.at)
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the evidence of one fault goes. `alone` is False for what is no incident unless a job suffers from it."""

    rule: str
    certainty: Certainty
    ready_at: datetime
    says: str
    alone: bool = True
    cleared_at: datetime | None = None
    flaps: int = 0
    lasting: bool = False


def host_links(
    cluster: str,
    node: str,
    seen: Iterable[Sighting],
    ports: Mapping[str, PortRow],
    fact: NodeFact | None,
    lives: Lives,
    config: Config,
) -> list[LinkFault]:
    """The link faults of a host, sorted by when they began.

    Args:
        cluster: Its cluster.
        node: Its name.
        seen: What was seen on it.
        ports: Switch ports with this node at their end.
        fact: What the inventory says of it.
        lives: Of closed incarnations.
        config: Measures of time.
    """
    # What another device says of a node by name may be meant of a switch, where nobody knows such a node.
    told = [
        (s, Entity(cluster, node=node, nic=s.entity.nic))
        for s in seen
        if s.kind == LINK and (fact is not None or s.entity.nic or not s.text("node"))
    ]
    told += [
        (s, Entity(cluster, node=node)) for row in ports.values() if row.link is None for s in of_port(row)
    ]
    told += [
        (s, Entity(cluster, node=node, nic=row.link.nic, switch=row.link.switch, port=row.link.port))
        for row in ports.values()
        if row.link is not None
        for s in of_port(row)
    ]
    if not told:
        return []
    cabled: dict[str | None, str] = {row.link.nic: row.link.switch for row in ports.values() if row.link}
    for rail, switch in fact.rails.items() if fact else ():
        cabled.setdefault(rail, switch)
    leaf = fact.leaf if fact else None
    faults = _grouped(f"node/{node}", "link", _moments(told, config), lives, config)
    return [replace(fault, switches=_switches(fault, cabled, leaf)) for fault in faults]


def uplink(name: str, root: Entity, ends: Sequence[PortRow], lives: Lives, config: Config) -> list[LinkFault]:
    """The faults of a cable between two switches, or of a port with an unknown end. `ends` are its ports' rows."""
    told = [(s, root) for row in ends for s in of_port(row)]
    switches = {row.link.switch for row in ends if row.link} | {
        row.link.peer_switch for row in ends if row.link and row.link.peer_switch
    }
    faults = _grouped(f"port/{name}", "fabric", _moments(told, config), lives, config)
    return [replace(f, switches=frozenset(switches | {root.switch or ""})) for f in faults]


def of_port(row: PortRow) -> list[Sighting]:
    """What a switch said of the link in one port."""
    return [s for group in row.seen.values() for s in group if s.kind == LINK]


def verdict(fault: LinkFault, config: Config) -> Verdict:
    """What the fault amounts to by itself."""
    downs = fault.downs(config.skew)
    down = [m for m in fault.moments if m.part == "down"]
    lasting = [m for m in down if m.end is None or m.end - m.start >= config.link_settle]
    device = [m for m in fault.moments if m.part == "device"]
    flapping = len(downs) >= config.flaps
    cleared_at = _cleared_at(fault, flapping, config)
    flaps = max(len(downs) - 1, 0)

    def said(rule: str, certainty: Certainty, ready_at: datetime, says: str, alone: bool = True) -> Verdict:
        return Verdict(rule, certainty, ready_at, says, alone, cleared_at, flaps, bool(lasting))

    if flapping:
        third = min(m.sighting.seen_at for m in fault.moments if m.at >= downs[config.flaps - 1])
        return said("link flaps", Certainty.LIKELY, third, f"its link went down {len(downs)} times")
    if lasting:
        ready_at = min(m.sighting.seen_at for m in lasting) + config.link_settle
        return said("link down", Certainty.LIKELY, ready_at, "its link is down")
    if device:
        ready_at = min(m.sighting.seen_at for m in device)
        return said("device failed", Certainty.LIKELY, ready_at, "the device reports that it failed")
    ready_at = min(m.sighting.seen_at for m in fault.moments)
    if downs:
        return said("link bounced", Certainty.LIKELY, ready_at, "its link went down and came back", False)
    # Optics that fail take their link along within seconds, and it is told under another name.
    return said("error counters", Certainty.WEAK, ready_at + config.link_settle, "its link works with errors")


def excuses(fault: LinkFault, row: NodeRow, config: Config) -> list[str]:
    """Reasons for which links of a host go down without being at fault."""
    since, until = fault.start - config.before, fault.last + config.before
    near = [s for group in row.seen.values() for s in group if s.firing and since <= s.at <= until]
    found = []
    if (row.fact is not None and row.fact.maintenance) or in_maintenance(row, fault.start, fault.start):
        found.append(MAINTENANCE)
    if any(s.kind == "node.condition" and s.text("subtype") == "rebooted" for s in near):
        found.append("the host was rebooted")
    if not fault.by_host and any(s.kind == NOT_READY for s in near):
        found.append("the host itself is gone")
    return found


def nic_link(
    fault: LinkFault, ports: Mapping[str, PortRow], excused: Sequence[str], config: Config
) -> Hypothesis:
    """The fault as a root of its own.

    Its evidence is `hard` when one NIC of a host that lives is down and nothing excuses it; only then can it close the node.
    """
    found = verdict(fault, config)
    down = _how_many(m for m in fault.moments if m.part in ("down", "bounced"))
    mine = {(m.name.switch, m.name.port) for m in fault.moments}
    others = [p for p in ports.values() if p.link and (p.link.switch, p.link.port) not in mine]
    alive = fault.by_host or any(not _is_down(p) for p in others)
    bonded = any(m.sighting.text("bond") for m in fault.moments)
    hard = found.lasting and alive and down == 1 and not bonded and not excused
    facts: dict[str, Attribute] = {
        "hard": hard,
        "nics": tuple(sorted({m.name.nic for m in fault.moments if m.name.nic}))[:16],
        "links_failed": max(down, 1),
        "link": found.rule,
        "maintenance": MAINTENANCE in excused,
    }
    if fault.switches - {""}:
        facts["switches"] = tuple(sorted(fault.switches - {""}))
    says = found.says if down < 2 else f"{found.says}, and {down - 1} more of that host's with it"
    why = f"{fault.root}: {says}" + (f" ({', '.join(excused)})" if excused else "")
    return Hypothesis(
        scope=fault.place,
        root=fault.root,
        family=FAMILY,
        incarnation=fault.incarnation,
        certainty=found.certainty,
        fault_at=fault.start,
        first_at=fault.start,
        last_at=fault.last,
        ready_at=found.ready_at,
        rule=found.rule,
        lag=config.scrape,
        stops=families()[FAMILY].stops,
        why=why,
        alone=found.alone and set(excused) <= {MAINTENANCE},
        cleared_at=found.cleared_at,
        flaps=found.flaps,
        causes=tuple(m.sighting for m in fault.moments),
        context=fault.context,
        facts=facts,
    )


def _how_many(moments: Iterable[Moment]) -> int:
    """How many NICs there are at least: what goes by names of different kinds may be the same, names of one kind are not."""
    kinds: dict[str, set[str]] = {}
    for m in moments:
        kinds.setdefault(_kind_of_name(m.name, m.by_host), set()).add(m.nic)
    return max(map(len, kinds.values()), default=0)


def _kind_of_name(name: Entity, by_host: bool) -> str:
    if not by_host:
        return "port"
    if name.nic is None or ":" in name.nic:
        return "address"
    return "rdma" if _RDMA.match(name.nic) else "interface"


def _is_down(row: PortRow) -> bool:
    stream = [s for s in of_port(row) if parts().of(s) == "down"]
    return any(spell.end is None for spell in spells(stream))


def _cleared_at(fault: LinkFault, flapping: bool, config: Config) -> datetime | None:
    """When the last trouble ended. A flapping link is well only when it stays up for a while."""
    ends = [m.end for m in fault.moments]
    if None in ends:
        return None
    last = max(end for end in ends if end is not None)
    return last + config.link_quiet if flapping else last


# Which names are one NIC.


def _moments(told: Sequence[tuple[Sighting, Entity]], config: Config) -> list[Moment]:
    """Every firing sighting with the end of its spell, sorted. A counter that rose tells of a moment that is past."""
    table = parts()
    same = _aliases(told)
    streams: dict[tuple[str, str, str], list[tuple[Sighting, Entity]]] = {}
    for s, name in told:
        if s.firing and table.is_intended(s):
            continue
        nic = same[_names(s, name)[0]]
        source = s.entity.switch or "host"
        streams.setdefault((nic, f"{source}/{s.entity.port}", s.text("subtype")), []).append((s, name))
    moments = []
    for (nic, _, _), stream in streams.items():
        names = {s.id: name for s, name in stream}
        goes_on = forgotten(s for s, _ in stream)
        found = (
            part
            for spell in spells(s for s, _ in stream)
            for part in found_anew(spell, goes_on, config.quiet, config.link_settle)
        )
        for spell in found:
            for s in spell.sightings:
                part = table.of(s)
                end = s.at if part == "bounced" else spell.end
                moments.append(Moment(s, part, nic, names[s.id], spell.start, end, goes_on.get(s.id)))
    return _seen_from_both_ends(sorted(moments, key=lambda m: order(m.sighting)), config)


def _seen_from_both_ends(moments: list[Moment], config: Config) -> list[Moment]:
    """Where only one end of a cable told that its link is up again, it is up at the other end, too: lines get lost.

    Only where it is sure which link that is: one of the host's own and one of a switch went down within the skew of clocks.
    """
    down = [m for m in moments if m.part == "down"]
    if all(m.end is not None for m in down) or len({m.by_host for m in down}) < 2:
        return moments
    ends: dict[str, datetime] = {}
    for m in down:
        near = [o for o in down if abs(o.start - m.start) <= config.skew]
        others = [o.end for o in near if o.by_host is not m.by_host and o.end is not None]
        if m.end is None and others and _how_many(near) == 1:
            ends[m.sighting.id] = max(others)
    return [replace(m, end=ends.get(m.sighting.id, m.end)) for m in moments]


def found_anew(spell: Spell, gaps: Mapping[str, datetime], quiet: timedelta, least: timedelta) -> list[Spell]:
    """The spell, cut where its begin is told a second time after long: it must have ended, and the line that said so is lost.

    `gaps` is where more was told and forgotten; `least` is how long a part is taken to have lasted.
    """
    parts: list[list[Sighting]] = [[spell.sightings[0]]]
    for before, s in pairwise(spell.sightings):
        if s.at - before.at > quiet and before.id not in gaps:
            parts.append([])
        parts[-1].append(s)
    last = len(parts) - 1
    return [
        Spell(part[0].at, part[-1].at, spell.end if number == last else part[-1].at + least, tuple(part))
        for number, part in enumerate(parts)
    ]


def forgotten(stream: Iterable[Sighting]) -> dict[str, datetime]:
    """Of a stream so long that its middle was dropped: the last sighting before the gap, and when the first after it was.

    A link that flaps all day must not look like two that flapped in the morning and in the evening.
    """
    kept = firing(stream)
    if len(kept) < 2 * KEPT_EACH_END:
        return {}
    return {kept[KEPT_EACH_END - 1].id: kept[KEPT_EACH_END].at}


def _names(s: Sighting, name: Entity) -> list[str]:
    """Every name that one sighting gives its NIC; at least one."""
    found = [f"{name.switch}/{name.port}"] if name.switch else []
    found += [n for n in (name.nic, s.text("pci")) if n]
    return found or ["?"]


def _aliases(told: Iterable[tuple[Sighting, Entity]]) -> dict[str, str]:
    """Each name → the least name of the NIC it belongs to."""
    least: dict[str, str] = {}

    def find(name: str) -> str:
        while least.setdefault(name, name) != name:
            name = least[name]
        return name

    for s, name in told:
        first, *others = _names(s, name)
        for other in others:
            one, two = sorted((find(first), find(other)))
            least[two] = one
        find(first)
    return {name: find(name) for name in list(least)}


# Which moments are one fault.


@dataclass(slots=True)
class _Group:
    incarnation: int
    leader: Entity
    moments: list[Moment]
    nics: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    """Kinds of the names that its NICs go by."""
    lasts: bool = False
    """Something in it is not over."""
    over_at: datetime | None = None
    """When the rest of it was over."""

    def take(self, m: Moment) -> None:
        """One more moment of it."""
        self.moments.append(m)
        self.nics.add(m.nic)
        self.kinds.add(_kind_of_name(m.name, m.by_host))
        self.lasts |= m.end is None
        ends = [at for at in (self.over_at, m.end, m.until) if at is not None]
        self.over_at = max(ends, default=None)


def _grouped(
    place: str, domain: str, moments: Sequence[Moment], lives: Lives, config: Config
) -> list[LinkFault]:
    groups: list[_Group] = []
    counts: dict[str, int] = {}
    for m in moments:
        if m.part == "context":
            continue
        group = next((g for g in reversed(groups) if _belongs(g, domain, m, lives, config)), None)
        if group is not None:
            group.take(m)
            continue
        leader = _shown(m, moments, config)
        base = lives.base(leader, domain)
        if base and m.at <= base.until + config.linger:
            continue
        after = counts.get(leader.key, base.count if base else 0)
        number = counts[leader.key] = lives.next_number((leader,), domain, after, m.at)
        groups.append(_Group(number, leader, []))
        groups[-1].take(m)
    said = [m for m in moments if m.part == "context"]
    return [_fault(place, group, said, config) for group in groups]


def _belongs(group: _Group, domain: str, m: Moment, lives: Lives, config: Config) -> bool:
    first = group.moments[0]
    closed = lives.closing(group.leader, domain, group.incarnation)
    if closed is not None and m.at > closed + config.linger:
        return False
    if m.nic in group.nics:
        return group.lasts or group.over_at is None or m.at <= group.over_at + config.link_quiet
    return _together(first, m, group.kinds, config)


def _together(first: Moment, m: Moment, kinds: Collection[str], config: Config) -> bool:
    """Whether two NICs of a host that are in trouble at the same time are one fault: both broke, or both are one NIC.

    A name of another kind than all those known may be the same NIC: an address, an interface, an RDMA device, a switch port.
    """
    if m.at - first.at > config.board:
        return False
    broke = m.part in _BROKEN and first.part in _BROKEN
    return broke or _kind_of_name(m.name, m.by_host) not in kinds


def _shown(first: Moment, moments: Sequence[Moment], config: Config) -> Entity:
    """The NIC under its best name: the host's own, else the cabling's, else an address, else the port.

    All that failed with it has a say, so that it does not matter whose clock runs ahead.
    """
    kinds = {_kind_of_name(first.name, first.by_host)}
    near = [
        m
        for m in moments
        if m.at >= first.at
        and m.part != "context"
        and ((m.at - first.at <= config.board and m.nic == first.nic) or _together(first, m, kinds, config))
    ]
    best = min(near, key=lambda m: (_rank(m.name), m.name.nic or "", m.name.switch or "", m.nic))
    mine = [m.name for m in near if m.nic == best.nic] or [m.name for m in near]
    cables = {(name.switch, name.port) for name in mine if name.switch} or {
        (m.name.switch, m.name.port) for m in near if m.name.switch
    }
    switch, port = cables.pop() if len(cables) == 1 else (best.name.switch, best.name.port)
    return replace(best.name, switch=switch, port=port)


def _rank(name: Entity) -> int:
    if name.nic is None:
        return 3
    if ":" in name.nic:
        return 2
    return 0 if name.switch is None else 1


def _fault(place: str, group: _Group, said: Sequence[Moment], config: Config) -> LinkFault:
    since = group.moments[0].at - config.before
    until = group.moments[-1].at + config.before
    near = tuple(m.sighting for m in said if m.nic in group.nics and since <= m.at <= until)
    return LinkFault(place, group.leader, group.incarnation, tuple(group.moments), near)


def _switches(fault: LinkFault, cabled: Mapping[str | None, str], leaf: str | None) -> frozenset[str]:
    """Which switches the fault hangs on: as told by ports, by the cabling of the named NICs, by any cable, by the label."""
    broken = [m for m in fault.moments if m.part in _BROKEN] or list(fault.moments)
    found = {m.name.switch for m in broken if m.name.switch}
    found |= {cabled[m.name.nic] for m in broken if m.name.nic in cabled}
    if not found and len(set(cabled.values())) == 1:
        found = set(cabled.values())
    if not found and leaf:
        found = {leaf}
    return frozenset(switch for switch in found if switch) or frozenset({""})
