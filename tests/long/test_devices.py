"""Promise: torchrun or SLURM decides how many processes train, and who is missing is said."""

import socket

import pytest

from shared.cli import UserError
from shared.common import environment, meeting
from shared.images import cli
from shared.records import scripts

BASELINE, FSDP = (scripts.get(name).path for name in ("01_baseline/train", "08_fsdp/train"))
ON_ONE, ON_FOUR = {"batch_size": 64, "devices": 1}, {"batch_size": 16, "devices": 4}


@pytest.fixture
def env(monkeypatch):
    """Sets variables; of those that torchrun sets, none is there before, nor afterwards."""
    for name in (*environment.NUMBERS, *environment.OF_TORCHRUN, environment.PARENT):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    monkeypatch.setattr(meeting, "_kept", {})
    return put


def test_torchrun_decides_the_number_of_processes(env):
    args = cli.parse(BASELINE, ["--devices", "4"], **ON_ONE)
    assert args.devices == 1 and any("08_fsdp/train.py and" in note for note in args.notes)
    env(LOCAL_WORLD_SIZE=2, WORLD_SIZE=4)
    args = cli.parse(FSDP, [], **ON_FOUR)
    assert (args.devices, args.num_nodes, args.world_size) == (2, 2, 4)
    with pytest.raises(UserError, match="leave --devices out"):
        cli.parse(FSDP, ["--devices", "8"], **ON_FOUR)
    with pytest.raises(UserError, match="trains on one device"):
        cli.parse(BASELINE, [], **ON_ONE)
    env(LOCAL_WORLD_SIZE=3, WORLD_SIZE=3)
    with pytest.raises(UserError, match="does not divide by 3"):
        cli.parse(FSDP, [], **ON_FOUR)


def test_a_machine_that_never_comes(env):
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    at = f"localhost:{port}"
    env(MASTER_ADDR="localhost", MASTER_PORT=port, WORLD_SIZE=2, RANK=1)
    with pytest.raises(UserError, match=rf"waited 0.3 s for the first .*rank 0\) at {at} \(Conn"):
        meeting.meet(0.3)
    env(RANK=0)
    with pytest.raises(UserError, match=f"waited 0.3 s at {at} for 2 .* 1 came; missing: rank 1"):
        meeting.meet(0.3)
    env(MASTER_ADDR="nowhere.invalid")
    with pytest.raises(UserError, match="MASTER_ADDR=nowhere.invalid cannot be found"):
        meeting.meet(0.3)
