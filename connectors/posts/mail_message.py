"""A post as a mail: text and HTML, in one thread per incident, in headers that nobody's text can end.

Copies are equal in what readers and servers go by: the Message-ID comes from the effect alone. Every mail of an incident refers
to one id that no mail has; readers put what refers to the same id together, also where somebody never got the first.
"""

from __future__ import annotations

from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from connectors.base import Effect
from connectors.posts.post import Post, post_id
from connectors.rendering.html import html
from connectors.rendering.text import one_line, text
from streams.model.digest import digest

MAX_TEXT = 60_000
MAX_HTML = 150_000
"""Characters of the two parts. Readers cut mails not much longer than this, and no server refuses them for their size."""


def message_id(effect: Effect, domain: str) -> str:
    """The Message-ID of every copy of this post."""
    return f"<{post_id(effect)}.post@{domain}>"


def thread_id(cluster: str, thread: str, domain: str) -> str:
    """The id that every mail of a thread refers to."""
    return f"<{digest('thread', cluster, thread)}.thread@{domain}>"


def mail(
    effect: Effect, post: Post, *, sender: str, to: tuple[str, ...], list_id: str, now: datetime
) -> EmailMessage:
    """The mail to all of `to`, who see each other. `sender` and `to` are addresses that were checked."""
    domain = sender.rpartition("@")[2]
    root = thread_id(effect.cluster, post.thread, domain)
    found = EmailMessage(policy=SMTP)
    found["From"] = f"Faultline <{sender}>"
    found["To"] = ", ".join(to)
    found["Subject"] = _header(post.subject)
    found["Date"] = format_datetime(now)
    found["Message-ID"] = message_id(effect, domain)
    if not post.first:
        found["In-Reply-To"] = root
    found["References"] = root
    found["List-Id"] = f"Faultline incidents <{list_id or f'faultline.{domain}'}>"
    # No out-of-office answers to a pipeline: RFC 3834, and Exchange's own word for it.
    found["Auto-Submitted"] = "auto-generated"
    found["X-Auto-Response-Suppress"] = "All"
    found["X-Faultline-Cluster"] = _header(effect.cluster)
    found["X-Faultline-Incident"] = _header(post.incident)
    footer = (
        f"Faultline, cluster {effect.cluster}, incident {post.incident}. Nobody reads answers to this mail."
    )
    found.set_content(f"{text(post.message, MAX_TEXT)}\n\n-- \n{one_line(footer)}\n", cte="quoted-printable")
    found.add_alternative(html(post.message, MAX_HTML, footer=footer), subtype="html", cte="quoted-printable")
    return found


def _header(text: str) -> str:
    """Text for a header. An encoded word in it would be decoded when the header is set, line ends and all: new headers."""
    return one_line(text, 200).replace("=?", "= ?")
