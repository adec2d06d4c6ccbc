"""Promise: a script trains on as many devices as it can use and there are, and says so."""

import os
from unittest import mock

import pytest
import torch
from forks import of_slurm

from shared.common import scripts
from shared.common.errors import UserError
from shared.images import cli

BASELINE, FSDP, PLAIN = (
    scripts.get(name).path for name in ("01_baseline/train", "08_fsdp/train", "08_fsdp/plain")
)
ON_ONE, ON_FOUR = {"batch_size": 64, "devices": 1}, {"batch_size": 16, "devices": 4}
BY_TORCHRUN = {**ON_FOUR, "launcher": "torchrun"}


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that there are this many GPUs."""

    def pretend(n):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n)

    return pretend


@pytest.fixture
def torchrun(monkeypatch):
    """Pretends that torchrun has started so many processes, here and on all machines."""

    def pretend(here, everywhere):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(here))
        monkeypatch.setenv("WORLD_SIZE", str(everywhere))

    return pretend


@pytest.mark.parametrize(
    "here, wanted, got",
    [(1, None, 1), (2, None, 2), (3, None, 2), (4, None, 4), (8, None, 4), (2, 8, 2), (3, 16, 2)],
)
def test_fewer_gpus_than_wanted(gpus, here, wanted, got):
    gpus(here)
    args = cli.parse(FSDP, ["--devices", str(wanted)] if wanted else [], **ON_FOUR)
    assert args.devices == args.world_size == got
    assert (args.preset, args.model, args.data) == ("full", "vit_l_16", "cifar10")
    assert args.image_px == 224
    noted = any(f"{here} here: training on {got}" in note for note in args.notes)
    assert noted == (here < (wanted or 4))


def test_a_stage_on_one_device_says_so():
    args = cli.parse(BASELINE, ["--devices", "4"], **ON_ONE)
    assert args.devices == 1
    assert any("08_fsdp/train.py and the later ones" in note for note in args.notes)


def test_torchrun_decides_the_number_of_processes(torchrun):
    torchrun(2, 4)
    args = cli.parse(FSDP, [], **ON_FOUR)
    assert (args.devices, args.num_nodes, args.world_size) == (2, 2, 4)
    with pytest.raises(UserError, match="leave --devices out"):
        cli.parse(FSDP, ["--devices", "8"], **ON_FOUR)
    with pytest.raises(UserError, match="trains on one device"):
        cli.parse(BASELINE, [], **ON_ONE)
    torchrun(2, 6)
    with pytest.raises(UserError, match="3 machines cannot share it"):
        cli.parse(FSDP, [], **ON_FOUR)
    torchrun(3, 3)
    with pytest.raises(UserError, match="does not divide by 3"):
        cli.parse(FSDP, [], **ON_FOUR)


def test_torchrun_with_more_processes_than_gpus(gpus, torchrun):
    gpus(2)
    torchrun(4, 4)
    with pytest.raises(UserError, match="4 processes, but there are 2 GPUs here"):
        cli.parse(FSDP, [], **ON_FOUR)


def test_who_starts_the_processes_of_plain_pytorch(gpus, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")  # undone afterwards
    gpus(2)
    args = cli.parse(PLAIN, [], **BY_TORCHRUN)
    assert (args.world_size, args.devices) == (1, 1)
    assert "one process; torchrun --nproc-per-node 2 08_fsdp/plain.py starts 2" in args.notes
    assert [os.environ[n] for n in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == ["0", "0", "1"]
    gpus(1)
    args = cli.parse(PLAIN, [], **BY_TORCHRUN)
    assert not any("torchrun" in note for note in args.notes)
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.setenv("WORLD_SIZE", "1")
        monkeypatch.setenv(name, "2")
        with pytest.raises(UserError, match="works together with what torchrun starts"):
            cli.parse(PLAIN, [], **BY_TORCHRUN)


@pytest.mark.parametrize("machines", [1, 2])
def test_in_a_batch_job_of_slurm(machines, monkeypatch, torchrun):
    """With the variables that the batch file of page 08 produces."""
    for name, value in of_slurm(machines, 0).items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(UserError, match="torchrun --nproc-per-node GPUS 08_fsdp/train.py; for sev"):
        cli.parse(FSDP, [], **ON_FOUR)
    alone = ((PLAIN, BY_TORCHRUN, "plain.py"), (BASELINE, ON_ONE, "--ntasks 1"))
    for path, its, told in alone:
        with mock.patch.dict(os.environ):
            if machines == 1:
                assert cli.parse(path, [], **its).world_size == 1
                continue
            with pytest.raises(UserError, match=told):
                cli.parse(path, [], **its)
    torchrun(2, 2 * machines)
    for path, its in ((FSDP, ON_FOUR), (PLAIN, BY_TORCHRUN)):
        args = cli.parse(path, [], **its)
        assert (args.devices, args.num_nodes, args.world_size) == (2, machines, 2 * machines)


def test_in_an_interactive_job_of_slurm_scripts_start_their_processes(monkeypatch):
    for name, value in {**of_slurm(2, 0), "SLURM_JOB_NAME": "interactive"}.items():
        monkeypatch.setenv(name, str(value))
    with mock.patch.dict(os.environ):
        assert cli.parse(FSDP, [], **ON_FOUR).world_size == 4
