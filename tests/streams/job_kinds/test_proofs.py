"""What the kinds say that they are proven by is what the tests run."""

from __future__ import annotations

from streams.job_kinds.kind import Proof
from streams.job_kinds.known import KNOWN
from streams.job_kinds.kubeflow import PROVEN_BY
from tests.testbed import parts, workloads


def test_kinds_of_the_training_operator_are_proven_by_the_one_that_is_built() -> None:
    operator = parts.part("training-operator")
    assert f"{operator.name} {operator.version}" == PROVEN_BY
    proven = {
        kind.name
        for kind in KNOWN.values()
        if kind.proof is not Proof.DOCUMENTED and PROVEN_BY in kind.proven_by
    }
    assert proven == set(workloads.KUBEFLOW)
