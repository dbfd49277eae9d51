"""One pseudonym for each name, by a key. Without state: who has the key makes the same ones, in any order and on any machine.

Pseudonyms keep the shape that rules look at. Digits of names stay, so that rack-mates stay together and in their order;
addresses of one /24 stay in one; UUIDs, MACs and serial numbers keep their form.
"""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address

KEY_BYTES = 32
_WORDS = re.compile(r"[A-Za-z]+")
_DASHED = re.compile(
    r"(?<![A-Za-z0-9])((?:ip-\d{1,3}|10|172|192)-\d{1,3}-\d{1,3}-\d{1,3})(?![0-9]|-[0-9])", re.IGNORECASE
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD_LETTERS = 8
"""Letters of a pseudonym: two of ten thousand words are the same once in four thousand captures."""


class Pseudonyms:
    """Pseudonyms by one key, which nobody else knows. `id` names the key and does not give it away.

    `kept` are words of names that stay beside others that change.
    """

    def __init__(self, key: bytes, kept: frozenset[str] = frozenset()) -> None:
        self._key = key
        self._kept = kept
        self.id = self._hex("id", "", 16)
        self.word = lru_cache(maxsize=100_000)(self._word)

    def name(self, name: str) -> str:
        """Of a host, job, pod, namespace or user: every word of it changes, digits and what is between stay.

        An address that is spelled out, as clouds name their hosts, is that address's pseudonym.
        """
        before, dashed, after = _DASHED.split(name, maxsplit=1) if _DASHED.search(name) else (name, "", "")
        made = self._words(before)
        if dashed:
            begin = 3 if dashed[:3].lower() == "ip-" else 0
            address = self.ipv4(dashed[begin:].replace("-", ".")).replace(".", "-")
            made += dashed[:begin] + address + self._words(after)
        return made

    def person(self, name: str) -> str:
        """Of a person's name, in whatever script: as many words."""
        return " ".join(self.word(word).capitalize() for word in name.split())

    def _words(self, name: str) -> str:
        words = {word.lower() for word in _WORDS.findall(name)}
        kept = self._kept if words - self._kept else frozenset[str]()
        return _WORDS.sub(lambda match: match[0] if match[0].lower() in kept else self.word(match[0]), name)

    def _word(self, word: str) -> str:
        number = int.from_bytes(self._bytes("word", word.lower())[:8], "big")
        letters = []
        for _ in range(_WORD_LETTERS):
            number, letter = divmod(number, 26)
            letters.append(_LETTERS[letter])
        made = "".join(letters)
        return made.upper() if word.isupper() else made

    def digits(self, text: str) -> str:
        """Of a number or a serial number: digits become digits, letters become letters of their case."""
        stream = self._bytes("digits", text.lower())
        while len(stream) < len(text):
            stream += sha256(stream).digest()
        return "".join(_like(char, byte) for char, byte in zip(text, stream, strict=False))

    def hex(self, text: str) -> str:
        """Of a UUID, GUID or MAC however it is written: its hex digits change, all else stays."""
        digits = [char for char in text if char in "0123456789abcdefABCDEF"]
        made = iter(self._hex("hex", "".join(digits).lower(), len(digits)))
        changed = "".join(next(made) if char in "0123456789abcdefABCDEF" else char for char in text)
        return changed.upper() if any(char in "ABCDEF" for char in digits) else changed

    def mac(self, text: str) -> str:
        """Of a MAC: a locally administered one."""
        return f"02{self.hex(text)[2:]}"

    def ipv4(self, text: str) -> str:
        """Of an address: one of 240.0.0.0/4, which nobody routes, so that it is no other host's; its last number stays.

        Addresses of one /24 stay in one, and two networks of 10/8, 172.16/12 or 192.168/16 never fall together.
        """
        first, second, third, last = map(int, text.split("."))
        network = second << 8 | third
        if first == 10:
            made = 241
        elif (first, second & 0xF0) == (172, 16):
            made = 242
        elif (first, second) == (192, 168):
            made = 243
        else:
            made, network = 244, int.from_bytes(self._bytes("ipv4", f"{first}.{second}.{third}")[:2], "big")
        network = self._permuted(network)
        return f"{made}.{network >> 8}.{network & 0xFF}.{last}"

    def ipv6(self, text: str) -> str:
        """Of an address: a unique local one; addresses of one /64 stay in one."""
        packed = ip_address(text).packed
        network = self._bytes("ipv6", packed[:8].hex())[:7]
        return str(IPv6Address(b"\xfd" + network + self._bytes("ipv6 host", packed.hex())[:8]))

    def _permuted(self, number: int) -> int:
        """A permutation of the numbers of 16 bits: a Feistel network, so that no two become one."""
        left, right = number >> 8, number & 0xFF
        for turn in range(6):
            left, right = right, left ^ self._bytes(f"turn {turn}", str(right))[0]
        return left << 8 | right

    def _hex(self, kind: str, text: str, digits: int) -> str:
        return self._bytes(kind, text).hex()[:digits]

    def _bytes(self, kind: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{kind}\0{text}".encode(), "sha256")


def _like(char: str, byte: int) -> str:
    if char.isdigit():
        return str(byte % 10)
    if char.isalpha() and char.isascii():
        letter = _LETTERS[byte % 26]
        return letter.upper() if char.isupper() else letter
    return char
