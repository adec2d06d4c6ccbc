"""Where the processes of a training meet: found out before they wait for each other for long.

PyTorch's init_process_group() waits for half an hour, and then ends in a traceback.
"""

import contextlib
import os
import socket
import time
from datetime import timedelta

import psutil
import torch.distributed as dist

from shared.common import environment
from shared.common.errors import UserError, shown

PATIENCE = 10  # seconds of waiting without a word
ADDRESS = "MASTER_ADDR must be the first machine, MASTER_PORT one of its free ports"
_kept = {}  # the stores of this process; init_process_group() goes on using the first process'


def meet(limit):
    """Waits until all processes have come to MASTER_ADDR:MASTER_PORT.

    Those variables, and RANK and WORLD_SIZE, are set by torchrun, or by hand.

    Args:
        limit: how long to wait, in seconds.

    Raises:
        UserError: it cannot be reached, is taken, or not all have come in time.
    """
    rank, size = environment.rank(), environment.number("WORLD_SIZE")
    host, port = os.environ["MASTER_ADDR"], environment.number("MASTER_PORT")
    at, deadline = f"{host}:{port}", time.monotonic() + limit
    if at in _kept:
        return
    if not port:
        raise UserError(f"MASTER_PORT={port}: {ADDRESS}")
    _resolve(host, port)
    by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if rank == 0 and not by_torchrun:
        store = host_store(limit)
    else:
        _wait_for_first(host, port, deadline, limit)
        store = _kept[at] = _store(host, port, deadline)
    # torchrun's store outlives a restart.
    key = f"ladder/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{{}}".format
    noted = time.monotonic() + PATIENCE
    try:
        if store.add(key(rank), 1) > 1:
            raise UserError(f"two processes at {at} have RANK={rank}; each needs one of its own")
        while missing := [r for r in range(size) if not store.check([key(r)])]:
            which = ", ".join(map(str, missing[:8])) + ", ..." * (len(missing) > 8)
            if time.monotonic() > deadline:
                raise UserError(
                    f"waited {limit:g} s at {at} for {size} processes, and {size - len(missing)} "
                    f"came; missing: rank {which}; start them, or wait longer with --timeout"
                )
            if time.monotonic() > noted and rank == 0:
                came = f"{size - len(missing)} of {size} processes have come"
                print(f"- waiting at {at} for rank {which}: {came}", flush=True)
                noted = deadline
            time.sleep(0.1)
    except dist.DistError:
        raise UserError(
            f"the first process (rank 0) at {at} has ended while others came; what it printed "
            "tells why"
        ) from None


def check_interface():
    """Makes sure that gloo, which connects CPUs, can use the network interface it is told to.

    Raises:
        UserError: there is no such interface.
    """
    there = psutil.net_if_addrs()
    for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(","):
        if name and name not in there:
            raise UserError(
                f"the environment has GLOO_SOCKET_IFNAME={shown(name)}, which is no "
                f"network interface of this machine; there are {', '.join(there)}"
            )


def host_store(limit):
    """Opens the store at MASTER_ADDR:MASTER_PORT that the processes find each other in.

    init_process_group() uses the same one. Without MASTER_PORT, Fabric chooses a port later.

    Returns:
        the store; None without MASTER_PORT.

    Raises:
        UserError: the port cannot be used, or the address is not of this machine.
    """
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), environment.number("MASTER_PORT", 0)
    _resolve(host, port)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise UserError(
            f"port {port} (MASTER_PORT) cannot be used: {why}; choose another one"
        ) from None
    with server:
        server.settimeout(1)
        try:
            address = host, server.getsockname()[1]
            with socket.create_connection(address, min(limit, PATIENCE)):
                server.accept()[0].close()
        except OSError:
            raise UserError(
                f"MASTER_ADDR={shown(host)} is not this machine, where the first "
                f"process is; {ADDRESS}"
            ) from None
    if port:
        _kept[f"{host}:{port}"] = _store(host, port, time.monotonic() + limit, is_master=True)
    return _kept.get(f"{host}:{port}")


def _store(host, port, deadline, is_master=False):
    left = timedelta(seconds=max(1, deadline - time.monotonic()))
    try:
        with _quiet():
            return dist.TCPStore(
                host, port, None, is_master, timeout=left, wait_for_workers=False, multi_tenant=True
            )
    except dist.DistError as error:
        raise UserError(f"cannot meet at {host}:{port}: {str(error).splitlines()[0]}") from None


@contextlib.contextmanager
def _quiet():
    """Hides PyTorch's warnings, pages of C++, for what is then said in one line."""
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)


def _resolve(host, port):
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "this is no name of a machine"
        raise UserError(f"MASTER_ADDR={shown(host)} cannot be found: {why}; {ADDRESS}") from None


def _wait_for_first(host, port, deadline, limit):
    noted = time.monotonic() + PATIENCE
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            with socket.create_connection((host, port), min(left, PATIENCE)):
                return
        except OSError as error:
            why = error.strerror or "no answer"
        if time.monotonic() > deadline:
            raise UserError(
                f"waited {limit:g} s for the first process (rank 0) at {host}:{port} ({why}); "
                f"start it, or wait longer with --timeout; {ADDRESS}"
            )
        if time.monotonic() > noted:
            print(f"- waiting for the first process (rank 0) at {host}:{port}: {why}", flush=True)
            noted = deadline
        time.sleep(0.2)
