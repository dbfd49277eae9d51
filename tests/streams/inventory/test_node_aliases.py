"""Other names of the machine behind a node."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.names import NodeLabels, names
from streams.inventory.nodes import node_fact
from tests.streams.inventory.objects import AT, node


@pytest.mark.parametrize(
    ("spec", "info", "metadata", "expected"),
    [
        (
            {"providerID": "aws:///eu-west-1a/i-0abc12345"},
            {},
            {},
            ("aws:///eu-west-1a/i-0abc12345", "i-0abc12345"),
        ),
        (
            {"providerID": "gce://project/europe-west4-a/gke-a3-7f"},
            {},
            {},
            ("gce://project/europe-west4-a/gke-a3-7f", "gke-a3-7f"),
        ),
        (
            {"providerID": "azure:///subscriptions/s/virtualMachineScaleSets/aks-gpu/virtualMachines/3"},
            {},
            {},
            ("aks-gpu_3", "azure:///subscriptions/s/virtualmachinescalesets/aks-gpu/virtualmachines/3"),
        ),
        (
            {
                "providerID": "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/gpu-vm-4"
            },
            {},
            {},
            (
                "azure:///subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachines/gpu-vm-4",
                "gpu-vm-4",
            ),
        ),
        ({"providerID": "ocid1.instance.oc1.iad.anuwc3tq7k"}, {}, {}, ("ocid1.instance.oc1.iad.anuwc3tq7k",)),
        (
            {"providerID": "oci://ocid1.instance.oc1.iad.anuwc3tq7k"},
            {},
            {},
            ("oci://ocid1.instance.oc1.iad.anuwc3tq7k", "ocid1.instance.oc1.iad.anuwc3tq7k"),
        ),
        (
            {},
            {"systemUUID": "4C4C4544-0042-3510", "machineID": "ec2a9b"},
            {},
            ("4c4c4544-0042-3510", "ec2a9b"),
        ),
        ({}, {"systemUUID": "Not Specified", "machineID": ""}, {}, ()),
        ({}, {}, {"labels": {"kubernetes.io/hostname": "gpu-01"}}, ()),
        ({}, {}, {"labels": {"kubernetes.io/hostname": "Gpu-01.Example"}}, ("gpu-01.example",)),
        (
            {},
            {},
            {"annotations": {"faultline.dev/host-names": "rack3-u7, gpu-01.ib.example"}},
            ("gpu-01.ib.example", "rack3-u7"),
        ),
        ({}, {}, {"labels": {"faultline.dev/serial-number": "CZ2D0X1"}}, ("cz2d0x1",)),
        ({}, {}, {"labels": {"hw.example.org/service-tag": "QX41ZB2"}}, ("qx41zb2",)),
        ({}, {}, {"annotations": {"example.org/serialNumber": "S-2204-77A"}}, ("s-2204-77a",)),
        ({}, {}, {"labels": {"example.org/serial": "B7", "example.org/asset-tag": "not-tagged"}}, ()),
        ({}, {}, {"labels": {"example.org/chassis-serial": "QX41ZB2"}}, ()),
        ({}, {}, {"annotations": {"metal3.io/BareMetalHost": "metal/bmh-7"}}, ("bmh-7",)),
    ],
)
def test_names_of_the_machine_become_aliases(
    spec: dict[str, Any], info: dict[str, Any], metadata: dict[str, Any], expected: tuple[str, ...]
) -> None:
    shown = node(**metadata)
    shown["spec"] |= spec
    shown["status"]["nodeInfo"] = info
    assert node_fact("c1", shown, AT).aliases == expected


def test_a_sites_own_labels_name_the_machine_too() -> None:
    labels = names().node_labels.after(NodeLabels(host_names=("example.com/asset",)))
    shown = node(annotations={"example.com/asset": "A-10042"})
    assert node_fact("c1", shown, AT, labels).aliases == ("a-10042",)
