"""All errors of the project. Adapters translate foreign exceptions into them and keep the cause.

FaultlineError
├── BadInput            bytes, a file or an argument that is malformed; names what and where
├── ConfigError         a setting, topic or catalog that is wrong; names the key and a correct value
├── Unreachable         Kafka, an API server or another service does not answer
│   └── Denied          Kafka answers, and refuses this user
├── Temporary           the same call may succeed later; may say when
├── Permanent           the same call will never succeed
└── Fenced              another owner has taken over; stop at once
"""

from __future__ import annotations


class FaultlineError(Exception):
    """Root of every error this project raises on purpose."""


class BadInput(FaultlineError):
    """Malformed input; the message names what is wrong and where."""


class ConfigError(FaultlineError):
    """A setting, topic or data file that is wrong; the message names the key."""


class Unreachable(FaultlineError):
    """An external system does not answer; the message names its address."""


class Denied(Unreachable):
    """A system answers and refuses whoever asks: to try again does not help; the message names the user."""


class Temporary(FaultlineError):
    """A call that may succeed later, after `retry_after_s` seconds if the server said so."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Permanent(FaultlineError):
    """A call that will never succeed as it is."""


class Fenced(FaultlineError):
    """Another process owns this work now: stop acting."""
