"""What every post is made of, and what a connector remembers of the posts it has made.

None of these sinks can be asked what it holds. Two kinds are told apart:

* A receiver folds copies, because each carries the effect's id (mail, webhook). What may have been lost is sent again.
* A receiver would show a copy (Teams, Apprise). What may have arrived counts as made, with `unclear` in its result.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from connectors.base import AlreadyDone, Effect
from connectors.rendering.text import one_line
from streams.model.codec import decode
from streams.model.digest import digest
from streams.model.errors import BadInput, Permanent
from streams.model.message import Message

T = TypeVar("T")

POST = "post"
MAX_SUBJECT = 200
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Post:
    """One post: `thread` is the same for every post of an incident, and so is `subject`."""

    message: Message
    incident: str
    thread: str
    first: bool
    subject: str


def post_of(effect: Effect) -> Post:
    """The post in an effect's params.

    Raises:
        Permanent: when there is no readable message in it.
    """
    try:
        message = decode(Message, str(effect.params.get("message", "")))
    except BadInput as error:
        raise Permanent(f"no message to post: {error}") from error
    # A post about several incidents is an effect of none of them; it names the one that leads.
    incident = one_line(str(effect.params.get("incident") or effect.incident), MAX_SUBJECT)
    thread = one_line(str(effect.params.get("thread") or incident or effect.key), MAX_SUBJECT)
    subject = one_line(str(effect.params.get("subject") or ""), MAX_SUBJECT)
    first = effect.params.get("first") in (True, "true")
    return Post(message, incident, thread, first, subject or f"Incident {incident}")


def unclear(why: str) -> AlreadyDone:
    """The outcome of a post that may have arrived and is not sent again."""
    return AlreadyDone({"unclear": True}, f"it may have been posted and is not sent again: {why}")


def post_id(effect: Effect) -> str:
    """The id that each copy of a post carries: safe in a header, an address and a signature, whatever the key is."""
    return digest("post", effect.cluster, effect.key)


class Remembered(Generic[T]):
    """The latest values by effect key. Only spares requests: what is forgotten, or known to another process, is done again."""

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._values: OrderedDict[str, T] = OrderedDict()
        self._most = most

    def get(self, key: str) -> T | None:
        """What was put under this key, if it is remembered still."""
        return self._values.get(key)

    def put(self, key: str, value: T) -> None:
        """Remember it, and forget the oldest above the limit."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def forget(self, key: str) -> None:
        """Forget this one."""
        self._values.pop(key, None)
