"""The part of the emulator inside a process with an emulated GPU; process.py is its interface."""

import os


def prepare():
    """Prepare PyTorch, which has just been imported."""
    from emulated_gpu.inside import alone, dynamo, host, kernels, report, streams

    kernels.begin()
    dynamo.leave_out("emulated_gpu")
    host.begin()
    streams.begin()
    report.begin()
    if int(os.environ.get("EMULATED_ALONE") or 0):
        alone.begin()
