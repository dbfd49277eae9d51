"""The names of Faultline's processes, what each does, in one place for the command line, the manifests and their tests."""

from __future__ import annotations

PROCESSES = {
    "detector": "reads every raw record and writes the signals in it",
    "inventory": "watches the API server and writes what runs where",
    "correlator": "joins signals and inventory into incidents",
    "responder": "carries runbooks out, once",
    "chat": "keeps one thread per incident",
}
