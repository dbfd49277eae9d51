"""In which order mpirun deals ranks out to the hosts of its list, as far as the launcher's command tells.

Without a flag it fills a host before it goes on to the next one (Open MPI, "mpirun", mapping; MPICH, "Using the Hydra Process
Manager"), and the MPI operator lists the workers by their index. Where it deals them out one host after the other, or by a list
of the user's own, no index tells a rank.
"""

from __future__ import annotations

import re

OPERATORS_LIST = "/etc/mpi/hostfile"
"""Where the MPI operator puts its list of hosts."""

_POLICY = re.compile(
    r"(?:^|\s)-{1,2}(?:(?:map|rank)-by|mca\s+rmaps_base_(?:mapping|ranking)_policy)[\s=]+(?P<policy>\S+)"
)
_WITHIN_A_HOST = re.compile(
    r"(?:slot|hwthread|core|cpu|numa|socket|package|board|l[1-3]?cache|ppr:\d{1,5}:node)\b"
)
"""Things of which a host has several: ranks go to all of a host's before they go to the next host."""
_SPAN = re.compile(r"[:,]span\b")
_OTHER_ORDER = re.compile(
    r"(?:^|\s)-{1,2}(?:bynode|rankfile|rf|rr|hosts?|H|app(?:file)?|configfile)(?=[\s=]|$)"
)
_LIST = re.compile(r"(?:^|\s)-{1,2}(?:hostfile|machinefile|f)[\s=]+(?P<path>\S+)")
_COUNT = re.compile(r"(?:^|\s)-{1,2}np?[\s=]+(?P<count>\d{1,7})(?=\s|$)")
_EACH = re.compile(
    r"(?:(?:^|\s)-{1,2}(?:npernode|N|ppn|perhost)[\s=]+|\bppr:)(?P<count>\d{1,5})(?=\s|:node\b|$)"
)


def fills_hosts(command: str, hosts: int, slots: int) -> bool:
    """Whether a launcher's command line starts `slots` ranks on each of `hosts`, in the order of the operator's list.

    A line that does not tell, as that of a script, does not say otherwise.
    """
    policies = [match["policy"].lower() for match in _POLICY.finditer(command)]
    if any(_WITHIN_A_HOST.match(policy) is None or _SPAN.search(policy) for policy in policies):
        return False
    if _OTHER_ORDER.search(command) or any(m["path"] != OPERATORS_LIST for m in _LIST.finditer(command)):
        return False
    each = all(int(match["count"]) == slots for match in _EACH.finditer(command))
    return each and all(int(match["count"]) == hosts * slots for match in _COUNT.finditer(command))
