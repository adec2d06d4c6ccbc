"""Promise: a wrong environment, or a machine that never comes, is told in one line."""

import os
import socket

import pytest

from shared.common import environment, meeting, scripts
from shared.common.errors import UserError
from shared.images import cli

ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
FULL = {**ALONE, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
ENVIRONMENTS = [
    *(({name: "abc"}, f"{name}=abc, which is no whole number") for name in environment.NUMBERS),
    ({"RANK": ""}, "RANK=, which is empty"),
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0, which is not from 1"),
    ({"LOCAL_RANK": "-1"}, "LOCAL_RANK=-1, which is less than 0"),
    ({"MASTER_PORT": "70000"}, "MASTER_PORT=70000, which is not from 0 to 65535"),
    ({"RANK": "9" * 5000}, "which is no whole number"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2, but no RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR"),
    ({"RANK": "0"}, "RANK=0, but no LOCAL_RANK, WORLD_SIZE"),
    ({"LOCAL_WORLD_SIZE": "2"}, "LOCAL_WORLD_SIZE=2, but no WORLD_SIZE"),
    (ALONE, "but no MASTER_ADDR, MASTER_PORT"),
    ({**FULL, "MASTER_ADDR": ""}, "but no MASTER_ADDR;"),
    ({**FULL, "RANK": "2"}, "RANK=2, but WORLD_SIZE=2: ranks are counted from 0 to 1"),
    ({**FULL, "LOCAL_RANK": "1"}, "LOCAL_RANK=1, but LOCAL_WORLD_SIZE=1"),
    ({**FULL, "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"}, "no multiple of LOCAL_WORLD_SIZE=2"),
    ({**FULL, "LOCAL_WORLD_SIZE": "4"}, "no multiple of LOCAL_WORLD_SIZE=4"),
    ({**FULL, "RANK": "1", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK must be 1"),
    ({"LT_DEVICES": "2"}, "LT_DEVICES, which changes what this script tells Fabric"),
]


@pytest.fixture
def env(monkeypatch):
    """Sets variables, of which none is there before."""
    for name in (*environment.NUMBERS, *environment.OF_TORCHRUN, environment.PARENT):
        monkeypatch.delenv(name, raising=False)

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    monkeypatch.setattr(meeting, "_kept", {})
    return put


def one_line(error):
    return str(error.value) if "\n" not in str(error.value) else pytest.fail(str(error.value))


@pytest.mark.parametrize("variables, told", ENVIRONMENTS)
def test_environment(env, variables, told):
    env(**variables)
    with pytest.raises(UserError) as error:
        environment.check_complete()
    assert told in one_line(error) and len(one_line(error)) < 400


def test_what_lightning_would_stumble_over_is_told(env, monkeypatch):
    """Lightning reads RANK while it is imported, before there is anything to catch its error."""
    monkeypatch.setattr(environment, "_set_aside", {})
    env(RANK="abc", WORLD_SIZE=2)
    environment.set_aside()
    assert "RANK" not in os.environ and os.environ["WORLD_SIZE"] == "2"
    with pytest.raises(UserError, match="RANK=abc"):
        environment.check()
    for script in scripts.every().values():
        imports = [line.split()[1] for line in script.lines if line.startswith("from ")]
        rooms = [name.partition(".")[0] for name in imports]
        assert "lightning" not in rooms or rooms.index("shared") < rooms.index("lightning")


@pytest.mark.parametrize("script", ["01_baseline/train", "08_fsdp/train", "08_fsdp/plain"])
def test_scripts_look_at_the_environment(env, script):
    one = script.startswith("01")
    its = {"batch_size": 16, "devices": 1 if one else 4}
    its |= {"launcher": "torchrun"} if script.endswith("plain") else {}
    path = scripts.get(script).path
    for variables, told in (
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE=abc"),
        ({"SLURM_NTASKS": "abc"}, "SLURM_NTASKS=abc"),
        ({"SLURM_NTASKS": "2"}, "SLURM"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            with pytest.raises(UserError, match=told):
                cli.parse(path, ["--preset", "tiny"], **its)


def test_alone_in_a_slurm_job(env):
    """Fabric would look for SLURM_PROCID, SLURM_LOCALID and others, which may be missing."""
    env(SLURM_NTASKS=1)
    cli.parse(scripts.get("01_baseline/train").path, ["--preset", "tiny"], batch_size=64)
    assert "SLURM_NTASKS" not in os.environ


def test_meeting_point(env, monkeypatch):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        env(MASTER_PORT=port)
        options = ["--preset", "tiny", "--devices", "2"]
        for variables in (
            {},
            {**FULL, "MASTER_PORT": str(port)},
        ):  # Fabric's first process, others'
            env(**variables)
            with pytest.raises(UserError, match=f"port {port} .* cannot be used: Address already"):
                cli.parse(
                    scripts.get("08_fsdp/train").path,
                    [] if variables else options,
                    batch_size=16,
                    devices=4,
                )
    env(**{**FULL, "MASTER_PORT": str(port)})
    for host, told in (
        ("nowhere.invalid", "MASTER_ADDR=nowhere.invalid cannot be found"),
        ("a" * 300, "cannot be found"),
        ("192.0.2.1", "MASTER_ADDR=192.0.2.1 is not this machine"),
    ):
        env(MASTER_ADDR=host)
        with pytest.raises(UserError, match=told) as error:
            meeting.meet(0.3)
        one_line(error)
    env(MASTER_ADDR="localhost", GLOO_SOCKET_IFNAME="nothing7")
    with pytest.raises(UserError, match="nothing7, which is no network interface"):
        meeting.check_interface()


def test_a_machine_that_never_comes(env, capsys, monkeypatch):
    monkeypatch.setattr(meeting, "PATIENCE", 0.1)
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    at = f"localhost:{port}"
    env(**{**FULL, "MASTER_PORT": port, "RANK": "1"})
    with pytest.raises(UserError, match=rf"waited 0.3 s for the first .*rank 0\) at {at} \(Conn"):
        meeting.meet(0.3)
    assert f"- waiting for the first process (rank 0) at {at}" in capsys.readouterr().out
    env(RANK=0)
    with pytest.raises(UserError, match=f"waited 0.3 s at {at} for 2 .* 1 came; missing: rank 1"):
        meeting.meet(0.3)
    assert f"- waiting at {at} for rank 1: 1 of 2 processes have come" in capsys.readouterr().out
    hosted = meeting._kept.pop(at)
    env(RANK=1)
    meeting.meet(3)
    kept = meeting._kept.pop(at)
    with pytest.raises(UserError, match="two processes at .* have RANK=1"):
        meeting.meet(3)
    assert hosted and kept
