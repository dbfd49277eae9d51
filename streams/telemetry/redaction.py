"""Keeps the values of secret settings out of everything that is said: logs, tracebacks, spans, dead letters, probes, errors.

Adapters do not quote secrets in the first place. But the exceptions of libraries quote what they were given: a URL with its
login, a header, a whole request. So whatever leaves a process as text goes through `clean`, which knows the values themselves,
plain and as they look in base64, percent-encoded or inside JSON.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import BaseModel, SecretStr

T = TypeVar("T")

PUT_IN = "[secret]"
"""What stands in a secret's place."""

MIN_LENGTH = 6
"""A shorter secret is no secret, and would take ordinary words out of every log."""

_ESCAPED = re.compile("%[0-9A-F]{2}")
_known: re.Pattern[str] | None = None


def know(secrets: Iterable[str]) -> None:
    """Replace the secrets that `clean` takes out."""
    global _known
    forms = {form for secret in secrets for form in _forms(secret)}
    # The longest first: a secret may begin another.
    ordered = sorted(forms, key=lambda form: (-len(form), form))
    _known = re.compile("|".join(map(re.escape, ordered))) if ordered else None


def clean(text: str) -> str:
    """`text` without any secret that is known."""
    return text if _known is None else _known.sub(PUT_IN, text)


def clean_outcome(outcome: T) -> T:
    """A connector's outcome whose words hold no secret: they go into documents, threads and tickets."""
    said = {
        name: text for name in ("reason", "detail") if isinstance(text := getattr(outcome, name, None), str)
    }
    cleaned = {name: clean(text) for name, text in said.items()}
    return outcome if cleaned == said else replace(outcome, **cleaned)  # type: ignore[type-var]


def secrets_of(value: Any) -> Iterator[str]:
    """The values of all secret settings in `value`, with the parts of those that are URLs or logins."""
    if isinstance(value, SecretStr):
        yield from _parts(value.get_secret_value())
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from secrets_of(getattr(value, name))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from secrets_of(inner)
    elif isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            yield from secrets_of(inner)
    elif isinstance(value, str) and "@" in value and "://" in value:
        yield from _login_of(value)


def _parts(secret: str) -> Iterator[str]:
    """A secret, and what would give it away by itself: a token without the word before it, the path of a webhook's URL."""
    yield secret
    scheme, space, rest = secret.partition(" ")
    if space and scheme.isalpha():
        yield rest.strip()
    if "://" in secret:
        yield from _login_of(secret)
        split = urlsplit(secret)
        yield from (part for part in (split.path.strip("/"), split.query) if len(part) >= 12)


def _login_of(url: str) -> Iterator[str]:
    try:
        split = urlsplit(url)
        if split.password:
            yield split.password
    except ValueError:
        return


def _forms(secret: str) -> Iterator[str]:
    """How a secret may stand in a text."""
    if len(secret) < MIN_LENGTH:
        return
    yield secret
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield encoded
        yield _ESCAPED.sub(lambda found: found[0].lower(), encoded)
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    raw = secret.encode()
    yield repr(raw)[2:-1]
    yield raw.hex()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        # Behind `user:`, its letters begin at any of three places of base64's groups. The letters that it shares with what is
        # around it are left out of what is looked for.
        for before in range(3):
            padded = encode(bytes(before) + raw)
            first = -(-before * 8 // 6)
            last = (before + len(raw)) * 8 // 6
            core = padded[first:last].decode()
            if len(core) >= MIN_LENGTH:
                yield core
                yield quote(core, safe="")
