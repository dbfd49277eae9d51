import pytest

from streams.model.entity import Entity, Gpu, JobRef, PodRef, canonical_pci


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("0000:1b:00", "0000:1b:00"),
        ("00000000:1B:00.0", "0000:1b:00"),
        ("0000:1b", "0000:1b:00"),
        ("PCI:0009:01", "0009:01:00"),
        ("PCI:0000:3b:00", "0000:3b:00"),
        ("0009:01:00", "0009:01:00"),
        ("00010000:01:00.0", "10000:01:00"),
        ("3b:00.0", "0000:3b:00"),
        ("PCI:0000:3b:00:00", "0000:3b:00"),
        ("PCI:0000:3b:00:0", "0000:3b:00"),
        ("3b:00:00", None),
        ("xxxx:xx:xx", None),
        ("", None),
        ("0000:1b:00 GPU-I:05", None),
    ],
)
def test_a_pci_address_has_one_form_however_it_is_written(written: str, canonical: str | None) -> None:
    assert canonical_pci(written) == canonical


@pytest.mark.parametrize(
    ("entity", "kind", "key"),
    [
        (Entity("c", node="n1", gpu=Gpu(pci="0000:1b:00")), "gpu", "gpu/n1/0000:1b:00"),
        (Entity("c", node="n1", gpu=Gpu(pci="0000:1b:00", mig="5:1")), "gpu", "gpu/n1/0000:1b:00/mig-5:1"),
        (Entity("c", node="n1", gpu=Gpu(index=3)), "gpu", "gpu/n1/index-3"),
        (Entity("c", node="n1", nic="mlx5_3", switch="leaf-1", port="e4"), "nic", "nic/n1/mlx5_3"),
        (Entity("c", switch="leaf-1", port="Ethernet4"), "port", "port/leaf-1/Ethernet4"),
        (Entity("c", node="n1"), "node", "node/n1"),
        (Entity("c", node="n1", pod=PodRef("ml", "a-0"), rank=3), "rank", "rank/ml/a-0/3"),
        (Entity("c", job=JobRef("Job", "ml", "a")), "job", "job/Job/ml/a"),
        (Entity("c"), "cluster", "cluster"),
    ],
)
def test_an_entity_is_named_by_its_most_specific_part(entity: Entity, kind: str, key: str) -> None:
    assert (entity.kind, entity.key) == (kind, key)
