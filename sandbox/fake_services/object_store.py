"""An object store that speaks S3, as far as reading, writing, listing and deleting objects goes. It holds them in memory.

Buckets need not be created, logins are not checked. An object is there when its upload is complete, and not before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from email.utils import formatdate
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from aiohttp import web

from sandbox.fake_services.server import Standin

_AT = "2026-03-01T00:00:00.000Z"


class ObjectStoreStandin(Standin):
    """`objects` is what it holds, by `BUCKET/KEY`; `uploads` what is not complete yet, by upload id and part number."""

    def __init__(self) -> None:
        super().__init__()
        self.app = web.Application(middlewares=[self._middleware], client_max_size=64 * 1024 * 1024)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.app.router.add_route("*", "/{bucket}", self._bucket)
        self.app.router.add_route("*", "/{bucket}/", self._bucket)
        self.app.router.add_route("*", "/{bucket}/{key:.+}", self._object)

    def uri(self, path: str) -> str:
        """The archive's address of a path, `BUCKET/KEY`."""
        return (
            f"s3://{path}?scheme=http&endpoint_override={self.url.removeprefix('http://')}&region=us-east-1"
        )

    async def _bucket(self, request: web.Request) -> web.Response:
        bucket = request.match_info["bucket"]
        if request.method == "POST" and "delete" in request.query:
            for key in _texts(await request.read(), "Key"):
                self.objects.pop(f"{bucket}/{key}", None)
            return _xml("<DeleteResult/>")
        if request.method == "GET" and request.query.get("list-type") == "2":
            return self._listing(bucket, request)
        return web.Response()

    def _listing(self, bucket: str, request: web.Request) -> web.Response:
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        after = request.query.get("continuation-token", "")
        most = int(request.query.get("max-keys", "1000"))
        found: dict[str, bytes | None] = {}
        for name in sorted(self.objects):
            key = name.removeprefix(f"{bucket}/")
            if key != name and key.startswith(prefix):
                head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                found[prefix + head + cut if cut else key] = None if cut else self.objects[name]
        names = [name for name in found if name > after]
        page, rest = names[:most], names[most:]
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        return _xml(
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><IsTruncated>{'true' if rest else 'false'}</IsTruncated>{token}"
            + "".join(_listed(name, found[name]) for name in page)
            + "</ListBucketResult>"
        )

    async def _object(self, request: web.Request) -> web.Response:
        name = f"{request.match_info['bucket']}/{request.match_info['key']}"
        query = request.query
        match request.method:
            case "PUT" if "partNumber" in query:
                content = await _body(request)
                self.uploads[query["uploadId"]][int(query["partNumber"])] = content
                return web.Response(headers={"ETag": _etag(content)})
            case "PUT":
                self.objects[name] = content = await _body(request)
                return web.Response(headers={"ETag": _etag(content)})
            case "POST" if "uploads" in query:
                upload = f"upload-{len(self.uploads)}"
                self.uploads[upload] = {}
                return _xml(
                    f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                )
            case "POST":
                parts = self.uploads.pop(query["uploadId"])
                self.objects[name] = b"".join(parts[number] for number in sorted(parts))
                etag = escape(_etag(self.objects[name]))
                return _xml(
                    f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
                )
            case "DELETE":
                self.objects.pop(name, None)
                self.uploads.pop(query.get("uploadId", ""), None)
                return web.Response(status=204)
            case _:
                return self._content(name, request)

    def _content(self, name: str, request: web.Request) -> web.Response:
        content = self.objects.get(name)
        if content is None:
            return _xml("<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>", status=404)
        headers = {"ETag": _etag(content), "Last-Modified": formatdate(usegmt=True), "Accept-Ranges": "bytes"}
        span = request.http_range
        if span.start is None and span.stop is None:
            return web.Response(body=content, headers=headers)
        part = content[span]
        start = span.start if span.start is not None and span.start >= 0 else len(content) - len(part)
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
        return web.Response(body=part, headers=headers, status=206)


async def _body(request: web.Request) -> bytes:
    """What is uploaded. Clients send it in chunks of their own, `SIZE;…\\r\\nDATA\\r\\n`, with a checksum behind the last."""
    rest = await request.read()
    if "aws-chunked" not in request.headers.get("Content-Encoding", ""):
        return rest
    found = []
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        if not size:
            break
        found.append(rest[:size])
        rest = rest[size + 2 :]
    return b"".join(found)


def _listed(name: str, content: bytes | None) -> str:
    if content is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>{_AT}</LastModified><ETag>{escape(_etag(content))}</ETag>"
        f"<Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _texts(document: bytes, tag: str) -> Iterator[str]:
    for element in ElementTree.fromstring(document).iter():
        if element.tag.rpartition("}")[2] == tag and element.text is not None:
            yield element.text


def _xml(body: str, status: int = 200) -> web.Response:
    return web.Response(
        text=f'<?xml version="1.0" encoding="UTF-8"?>{body}', content_type="application/xml", status=status
    )
