"""What a job's own output can bear witness to: itself, and nothing of the hardware.

Anybody who may run a container writes its log. A program that prints the kernel's words for a dead GPU, an Event or an alert, by
mistake (a test of a parser, a log that is shown) or on purpose, must not get a node cordoned: neither the one it runs on, nor one
that it names. The kernel, the kubelet and the fabric have topics of their own, which only node agents may write.
"""

from __future__ import annotations

from streams.kafka.topics import RAW_JOB_LOGS
from streams.model.kinds import SignalKind

_OF_ITSELF = ("job.", "nccl.", SignalKind.UNKNOWN)


def may_report(topic: str, kind: str) -> bool:
    """Whether a signal of this kind is believed from a raw topic (its name without prefix).

    Of those that are not, a line is kept as hearsay (`relayed`), which is never decisive, and of another host only counts where
    the job stands; an Event or an alert is left out.
    """
    return topic != RAW_JOB_LOGS.name or kind.startswith(_OF_ITSELF)
