"""What runs inside a process with an emulated GPU: values, cheap hosts, other ranks, the report."""

import os


def prepare():
    """Prepare PyTorch, which has just been imported."""
    from emulated_gpu import alone, host, report, values

    values.begin()
    host.begin()
    report.begin()
    if int(os.environ.get("EMULATED_ALONE") or 0):
        alone.begin()
