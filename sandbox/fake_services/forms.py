"""Files from a multipart form whose bytes were read before, as the base of the stand-ins does with every request."""

from __future__ import annotations

from email import message_from_bytes
from email.policy import HTTP

from aiohttp import web


async def files_in(request: web.Request) -> dict[str, tuple[str, bytes]]:
    """File name and content of each part of a form, by the part's name."""
    head = f"Content-Type: {request.headers.get('Content-Type', '')}\r\n\r\n".encode()
    form = message_from_bytes(head + await request.read(), policy=HTTP)
    files = {}
    for part in form.iter_parts() if form.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            files[name] = (part.get_filename() or "", content)
    return files
