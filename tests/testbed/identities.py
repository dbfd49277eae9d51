"""Who may talk to the testbed's API server: static users by token, and kubeconfig files for them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

ADMIN = "admin"
MASTERS = ("system:masters",)
# Its own programs have users of their own, so that the audit log can leave them out.
COMPONENTS = (
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "testbed:kwok",
    "testbed:training-operator",
)


class Identities:
    """The users of one control plane: ``admin``, its own programs, and ``users`` (name → groups)."""

    def __init__(self, folder: Path, server: str, users: Mapping[str, Sequence[str]]) -> None:
        self._folder = folder
        self._server = server
        self._groups = {ADMIN: MASTERS} | dict.fromkeys(COMPONENTS, MASTERS) | dict(users)
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}

    @property
    def certificate(self) -> Path:
        """The certificate that the API server makes for itself at its start."""
        return self._folder / "certificates" / "apiserver.crt"

    @property
    def tokens_csv(self) -> Path:
        """The file the API server reads the static users from."""
        return self._folder / "tokens.csv"

    def write_tokens(self) -> None:
        """Write ``tokens.csv``: token, user, uid, groups."""
        lines = [
            f'{self._tokens[user]},{user},{user},"{",".join(groups)}"\n'
            for user, groups in self._groups.items()
        ]
        self.tokens_csv.write_text("".join(lines))
        self.tokens_csv.chmod(0o600)

    def is_static(self, user: str) -> bool:
        """Tell whether ``user`` is one of those that the API server read at its start."""
        return user in self._tokens

    def kubeconfig(self, user: str, token: str | None = None) -> Path:
        """Write the kubeconfig of ``user`` and return its path; ``token`` is for one that is not static."""
        path = self._folder / "kubeconfig" / f"{user.replace(':', '_')}.yaml"
        path.parent.mkdir(exist_ok=True)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "clusters": [
                {
                    "name": "testbed",
                    "cluster": {"server": self._server, "certificate-authority": str(self.certificate)},
                }
            ],
            "users": [{"name": user, "user": {"token": token or self._tokens[user]}}],
        }
        # Whole at every moment: processes read it at their start, while a test asks for it once more for its next kubectl.
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        fresh.write_text(yaml.safe_dump(config))
        fresh.chmod(0o600)
        fresh.replace(path)
        return path
