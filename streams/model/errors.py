"""The one tree of errors. Adapters translate foreign exceptions into it at the border and keep the cause.

FaultlineError
├── BadInput            bytes, a file or an argument that cannot be understood; names what and where
├── ConfigError         a setting, topic or catalog that is wrong; names the key and what would be right
├── Unreachable         Kafka, an API server or another service does not answer at all
├── Temporary           the same call may succeed later; carries when
├── Permanent           the same call will never succeed
└── Fenced              another owner has taken over; stop acting at once
"""

from __future__ import annotations


class FaultlineError(Exception):
    """Root of every error this project raises on purpose."""


class BadInput(FaultlineError):
    """Input that cannot be understood; the message names what is wrong and where."""


class ConfigError(FaultlineError):
    """A setting, topic or data file that is wrong; the message names the key."""


class Unreachable(FaultlineError):
    """Something outside does not answer; the message names its address."""


class Temporary(FaultlineError):
    """A call that may succeed later, after `retry_after_s` seconds when the other side said so."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Permanent(FaultlineError):
    """A call that will never succeed as it is."""


class Fenced(FaultlineError):
    """Another process owns this work now. The only right reaction is to stop acting."""
