"""Which words of a container runtime speak of the node's GPU software, and which of what a pod asked for."""

from __future__ import annotations

import pytest

from tests.streams.detect.test_services import event

SANDBOX = "Failed to create pod sandbox: rpc error: code = Unknown desc = "
OCI = "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: "


@pytest.mark.parametrize(
    "message",
    [
        # containerd, CRI-O, dockershim, Docker
        SANDBOX + 'failed to get sandbox runtime: no runtime for "nvidia" is configured',
        SANDBOX + "failed to find runtime handler nvidia from runtime list map[runc:0xc0003]",
        SANDBOX + 'RuntimeHandler "nvidia" not supported',
        SANDBOX + "Error response from daemon: Unknown runtime specified nvidia",
        SANDBOX + "Error response from daemon: unknown or invalid runtime name: nvidia",
        # its programs, as runc and containerd's shim miss them
        OCI
        + "unable to retrieve OCI runtime error (open /run/containerd/io.containerd.runtime.v2.task/k8s.io/4f/log.json: no "
        "such file or directory): fork/exec /usr/bin/nvidia-container-runtime: no such file or directory: unknown",
        OCI + 'exec: "nvidia-container-runtime-hook": executable file not found in $PATH: unknown',
        OCI
        + "error running prestart hook #0: exit status 1, stderr: nvidia-container-cli: initialization error: load library "
        "failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
        OCI
        + "error running prestart hook #0: exit status 1, stderr: nvidia-container-cli: initialization error: nvml error: "
        "driver not loaded: unknown",
    ],
)
def test_a_runtime_for_gpus_that_is_missing(message: str) -> None:
    (signal,) = event("FailedCreatePodSandBox" if message.startswith(SANDBOX) else "Failed", message)
    assert (signal.kind, signal.attributes["subtype"]) == ("job.failed", "gpu_runtime")
    assert signal.entity.node == "gpu-3"


@pytest.mark.parametrize(
    "message",
    [
        SANDBOX + 'failed to get sandbox runtime: no runtime for "kata-qemu" is configured',
        SANDBOX + 'failed to get sandbox runtime: no runtime for "nvidia-2025-test" is configured',
        SANDBOX + "failed to find runtime handler gvisor from runtime list map[nvidia:0xc0003]",
        OCI + 'exec: "nvidia-smi": executable file not found in $PATH: unknown',
        OCI + 'exec: "/opt/nvidia/nvidia_entrypoint.sh": no such file or directory: unknown',
        OCI + "stderr: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0: unknown",
        OCI + "stderr: nvidia-container-cli: device error: GPU-1: unknown device: unknown",
    ],
)
def test_what_a_pod_asked_for_or_lacks_itself(message: str) -> None:
    found = event("FailedCreatePodSandBox" if message.startswith(SANDBOX) else "Failed", message)
    assert "gpu_runtime" not in {s.attributes.get("subtype") for s in found}
