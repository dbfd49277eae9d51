"""A mail server for tests: aiosmtpd on loopback, with a mailbox per recipient and the failures of real ones."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.testbed.waiting import eventually

HANG = "hang"
"""Take the mail and never answer."""
DROP = "drop"
"""Take the mail and cut the connection."""
DROP_BEFORE = "drop before"
"""Cut the connection at RCPT."""
HANG_UNTAKEN, DROP_UNTAKEN = "5 hang untaken", "5 drop untaken"
"""The same without taking the mail."""


class MailServer:
    """Answers to RCPT by address (`at_rcpt`, used up one by one) and to a whole mail (`at_data`); accepted where none is left."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        implicit_tls: bool = False,
        login: tuple[str, str] | None = None,
        size_limit: int = 10_000_000,
    ) -> None:
        self.port = 0
        self.at_rcpt: dict[str, deque[str]] = {}
        self.at_data: deque[str] = deque()
        self.mails: list[tuple[tuple[str, ...], EmailMessage]] = []
        """Each mail that was handed in whole, with its recipients."""
        self.raw: list[bytes] = []
        self.encrypted: list[bool] = []
        self.connections = 0
        self._tls, self._implicit, self._login, self._size_limit = tls, implicit_tls, login, size_limit
        self._transports: list[asyncio.BaseTransport] = []
        self._never = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        tls = self._tls if self._implicit else None
        self._server = await loop.create_server(self._protocol, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._never.set()
        self._server.close()
        for transport in self._transports:
            transport.close()
        await self._server.wait_closed()

    def mailbox(self, address: str) -> list[EmailMessage]:
        """What a reader who folds by Message-ID sees."""
        seen = {str(mail["Message-ID"]): mail for to, mail in self.mails if address in to}
        return list(seen.values())

    async def has(self, mails: int) -> None:
        """Return once so many mails were handed in."""

        async def enough() -> bool:
            return len(self.mails) >= mails

        await eventually(enough, f"{mails} mails are here")

    def _protocol(self) -> SMTP:
        self.connections += 1
        return SMTP(
            self,
            hostname="mail.example.test",
            data_size_limit=self._size_limit,
            enable_SMTPUTF8=False,
            tls_context=None if self._implicit else self._tls,
            require_starttls=self._tls is not None and not self._implicit,
            auth_required=self._login is not None,
            auth_require_tls=self._tls is not None and not self._implicit,
            authenticator=self._authenticated,
            loop=asyncio.get_running_loop(),
        )

    def _authenticated(
        self, server: SMTP, session: Session, envelope: Envelope, how: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        given = (data.login.decode(), data.password.decode())
        return AuthResult(success=given == self._login, handled=False)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answers = self.at_rcpt.get(address)
        answer = answers.popleft() if answers else "250 OK"
        if answer == DROP_BEFORE:
            self._cut(server)
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        answer = self.at_data.popleft() if self.at_data else "250 OK"
        if answer[0] not in "45":
            content = envelope.content
            assert isinstance(content, bytes)
            self.raw.append(content)
            self.encrypted.append(session.ssl is not None or self._implicit)
            parsed = message_from_bytes(content, policy=policy.default)
            assert isinstance(parsed, EmailMessage)
            self.mails.append((tuple(envelope.rcpt_tos), parsed))
        if answer in (HANG, HANG_UNTAKEN):
            await self._never.wait()
        if answer in (DROP, DROP_UNTAKEN):
            self._cut(server)
        return answer

    @staticmethod
    def _cut(server: SMTP) -> None:
        assert isinstance(server.transport, asyncio.Transport)
        server.transport.abort()


def contexts(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS with a certificate for 127.0.0.1, and the file of the authority that signed it: itself."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail.example.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    both = folder / "server.pem"
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    both.write_bytes(
        pem
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    authority = folder / "authority.pem"
    authority.write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, authority
