"""What the testbed consists of, where its builds lie, and whether each is there.

Builds lie in the user's cache, or where ``TESTBED_HOME`` points, so that every checkout on the machine finds them. Each
part has a folder of its own, named for the recipe it was built from: a changed recipe makes it missing again, and a checkout
that still has the old one goes on with the old build.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RECIPES = Path(__file__).parent / "recipes"
KUBERNETES_VERSION = "v1.34.4"


def home() -> Path:
    """Return the folder that holds the builds; it need not exist yet."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TESTBED_HOME") or Path(caches, "faultline-testbed")).resolve()


@dataclass(frozen=True)
class Tool:
    """A program the build needs, with the oldest version that serves; ``asks`` prints its version."""

    program: str
    asks: tuple[str, ...] = ()
    at_least: tuple[int, int] = (0, 0)

    def lacking(self) -> str | None:
        """Return what is wrong with the installed tool in a few words, or None."""
        if shutil.which(self.program) is None:
            return f"{self.program} is not installed"
        if not self.asks:
            return None
        answer = subprocess.run([self.program, *self.asks], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+)\.(\d+)", answer.stdout + answer.stderr)
        if found is None or (int(found[1]), int(found[2])) < self.at_least:
            version = found[0] if found else "unknown"
            return f"{self.program} {self.at_least[0]}.{self.at_least[1]} is needed, found {version}"
        return None


@dataclass(frozen=True)
class Ability:
    """Something the build and the tests do that a machine may refuse; ``command`` ends with 0 where it can."""

    command: tuple[str, ...]
    missing: str

    def lacking(self) -> str | None:
        """Return what this machine cannot do, or None."""
        if shutil.which(self.command[0]) is None:
            return self.missing
        return (
            None
            if subprocess.run(self.command, capture_output=True, check=False).returncode == 0
            else self.missing
        )


JAVA = (Tool("java", ("-version",), (17, 0)), Tool("mvn"))
GO = (Tool("go", ("env", "GOVERSION"), (1, 24)),)
DEBIAN = (Tool("apt-get"), Tool("dpkg-deb"))
CONTAINERS = (
    Ability(
        ("python3", "-c", "import os, sys; sys.exit(os.geteuid() != 0)"), "root is needed to run containers"
    ),
    Ability(("unshare", "--mount", "--pid", "--net", "--fork", "true"), "this machine allows no namespaces"),
    Ability(("grep", "-q", "VERSION_CODENAME=bookworm", "/etc/os-release"), "Debian 12 is needed"),
)


@cache
def _contents(folder: Path) -> bytes:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)


@dataclass(frozen=True)
class Part:
    """One thing to build: its recipe folder, who needs it, and what it makes.

    ``marker`` is the pytest marker of the tests that need it. ``programs`` maps a binary in its folder's ``bin/`` to the Go
    package it is built from, with the build ``tags``. ``copies`` maps a path in its folder to ``MODULE/PATH``, a folder of a
    Go module the recipe pins. ``completed`` is a module whose archive lacks files that its build embeds, and those files: it is
    built as a copy that has them, empty. ``packages`` are Debian's, unpacked and not installed; ``installs`` are installed, for
    ``commands``. ``images`` are the names of container images. ``needs`` are parts that are built before.
    """

    name: str
    version: str
    marker: str
    tools: tuple[Tool | Ability, ...]
    programs: tuple[tuple[str, str], ...] = ()
    copies: tuple[tuple[str, str, str], ...] = ()
    completed: tuple[str, tuple[str, ...]] | None = None
    tags: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    installs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def recipe(self) -> Path:
        """The folder with its ``go.mod`` or ``pom.xml``."""
        return RECIPES / self.name

    @property
    def folder(self) -> Path:
        """Where its build lies. Resolved: the engine keeps the names of its folders in its storage."""
        return (home() / f"{self.name}-{self.checksum()[:16]}").resolve()

    @property
    def stamp(self) -> Path:
        """The file that a build leaves last."""
        return self.folder / "built"

    def checksum(self) -> str:
        """Return a checksum over everything that decides what comes out."""
        total = hashlib.sha256(
            repr(
                (
                    platform.machine(),
                    self.version,
                    self.programs,
                    self.copies,
                    *(self.completed or ()),
                    *self.tags,
                    *self.packages,
                    *self.installs,
                    *self.images,
                )
            ).encode()
        )
        for needed in (part for part in PARTS if part.name in self.needs):
            total.update(needed.checksum().encode())
        total.update(_contents(self.recipe))
        return total.hexdigest()

    def built(self) -> bool:
        """Tell whether the build is there and made from the present recipe."""
        may_use = os.geteuid() == 0 or self.marker != "containers"
        return self.stamp.is_file() and may_use and all(shutil.which(command) for command in self.commands)

    def lacking_tools(self) -> list[str]:
        """Return what keeps this machine from building it."""
        lacks = [lack for tool in self.tools if (lack := tool.lacking())]
        for needed in (part for part in PARTS if part.name in self.needs and not part.built()):
            lacks += [f"{needed.name} cannot be built" for _ in needed.lacking_tools()[:1]]
        return lacks


PARTS = (
    Part("kafka", "4.1.1", "kafka", JAVA),
    Part("keys", "1", "cluster", GO, programs=(("make-key", "."),)),
    Part("etcd", "3.6.8", "cluster", GO, programs=(("etcd", "go.etcd.io/etcd/server/v3"),)),
    Part("kwok", "0.8.0", "cluster", GO, programs=(("kwok", "sigs.k8s.io/kwok/cmd/kwok"),)),
    Part(
        "training-operator",
        "1.7.0",
        "cluster",
        GO,
        programs=(("training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1"),),
        copies=(("crds", "github.com/kubeflow/training-operator", "manifests/base/crds"),),
    ),
    Part(
        "kubernetes",
        KUBERNETES_VERSION.removeprefix("v"),
        "cluster",
        GO,
        programs=tuple(
            (name, f"k8s.io/kubernetes/cmd/{name}")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
    ),
    # kubectl brings kustomize along.
    Part("helm", "4.3.1", "helm", GO, programs=(("helm", "helm.sh/helm/v4/cmd/helm"),)),
    Part(
        "alertmanager",
        "0.34.2",
        "alertmanager",
        GO,
        programs=(("alertmanager", "./cmd/alertmanager"),),
        # Its pages are made by npm for releases and are not in the module.
        completed=("github.com/prometheus/alertmanager", ("ui/app/dist/index.html",)),
    ),
    Part(
        "telegraf",
        "1.37.2",
        "telegraf",
        GO,
        programs=(("telegraf", "github.com/influxdata/telegraf/cmd/telegraf"),),
        # All of its plugins would take ten times as long.
        tags=(
            "custom",
            "inputs.prometheus",
            "parsers.prometheus",
            "outputs.kafka",
            "serializers.influx",
            "serializers.json",
        ),
    ),
    Part(
        "rsyslog",
        "debian",
        "rsyslog",
        DEBIAN,
        packages=("rsyslog", "rsyslog-kafka", "librdkafka1", "libestr0", "libfastjson4"),
    ),
    # promtool comes with it. Its pages need more packages; its API and its rules need none.
    Part("prometheus", "debian", "prometheus", DEBIAN, packages=("prometheus",)),
    Part(
        "engine",
        "debian",
        "containers",
        (*CONTAINERS, Tool("apt-get")),
        installs=("podman", "buildah", "runc", "netavark", "aardvark-dns", "iptables", "debootstrap"),
        commands=("podman", "buildah", "runc", "debootstrap", "iptables"),
    ),
    Part(
        "images",
        "1",
        "containers",
        (*CONTAINERS, Tool("apt-get")),
        images=("python:3.11-slim", "apache/kafka:4.1.1"),
        needs=("kafka", "engine"),
    ),
    Part(
        "chromium",
        "debian",
        "browser",
        (
            Ability(
                ("python3", "-c", "import os, sys; sys.exit(os.geteuid() != 0)"),
                "root is needed to install it",
            ),
            Tool("apt-get"),
        ),
        # With fonts of its own pictures look the same everywhere.
        installs=("chromium", "fonts-dejavu-core"),
        commands=("chromium",),
    ),
    Part(
        "slurm",
        "debian",
        "slurm",
        (
            Ability(
                ("python3", "-c", "import os, sys; sys.exit(os.geteuid() != 0)"),
                "root is needed to install it, and slurmd runs as root",
            ),
            Tool("apt-get"),
        ),
        installs=("slurmctld", "slurmd", "slurm-client", "slurmrestd", "munge"),
        commands=("slurmctld", "slurmd", "scontrol", "slurmrestd", "munged"),
    ),
)


def part(name: str) -> Part:
    """Return the part of that name."""
    return next(part for part in PARTS if part.name == name)


def program(name: str) -> Path:
    """Return where a program lies once its part is built."""
    (of,) = (part for part in PARTS if name in dict(part.programs))
    return of.folder / "bin" / name


def missing(*markers: str) -> list[str]:
    """Return the names of the parts that tests with these markers need and that are not built."""
    return [part.name for part in PARTS if part.marker in markers and not part.built()]
