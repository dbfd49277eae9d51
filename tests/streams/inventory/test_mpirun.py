"""In which order mpirun starts ranks on the workers of an MPIJob, as far as its command line tells."""

from __future__ import annotations

import pytest

from streams.inventory.mpirun import fills_hosts


@pytest.mark.parametrize("command", [
    "",
    "/bin/bash /srv/run.sh",
    "mpirun -np 32 python train.py",
    "mpirun --allow-run-as-root -np 32 -bind-to none -map-by slot -x NCCL_DEBUG=INFO python train.py",
    "mpirun -n 32 --map-by ppr:8:node --bind-to numa python train.py",
    "mpirun --npernode 8 --hostfile /etc/mpi/hostfile python train.py",
    "mpiexec.hydra -f /etc/mpi/hostfile -ppn 8 -n 32 ./train",
    "mpirun --mca rmaps_base_mapping_policy slot ./train",
    "mpirun --map-by socket:PE=12 ./train",
    "mpirun -np $((8 * N)) ./train",
    "horovodrun -np 32 python train.py",
])  # fmt: skip
def test_workers_are_filled_one_after_the_other_unless_it_says_otherwise(command: str) -> None:
    assert fills_hosts(command, 4, 8)


@pytest.mark.parametrize("command", [
    "mpirun -np 32 --map-by node python train.py",
    "mpirun -np 32 -bynode python train.py",
    "mpirun --rank-by=node ./train",
    "mpirun --map-by socket:span ./train",
    "mpirun --map-by ppr:4:node ./train",
    "mpirun --map-by ppr:2:socket ./train",
    "mpirun -np 16 ./train",
    "mpirun -npernode 1 torchrun --nproc-per-node=8 train.py",
    "mpirun --rankfile /srv/ranks ./train",
    "mpirun -H w-3,w-1,w-0,w-2 ./train",
    "mpirun --hostfile /srv/hosts ./train",
    "mpirun --mca rmaps_base_mapping_policy node ./train",
    "mpirun --map-by dist:span ./train",
])  # fmt: skip
def test_no_index_tells_a_rank_where_it_deals_them_out_otherwise(command: str) -> None:
    assert not fills_hosts(command, 4, 8)
