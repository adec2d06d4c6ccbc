"""What runs inside a process with an emulated GPU: values, cheap hosts, other ranks, the report."""

import functools
import os


def prepare():
    """Prepare PyTorch, which has just been imported."""
    from emulated_gpu import alone, host, report, values

    values.begin()
    leave_out("emulated_gpu")
    host.begin()
    report.begin()
    if int(os.environ.get("EMULATED_ALONE") or 0):
        alone.begin()


def leave_out(package):
    """Let torch.compile() leave out the functions of a package that stand around operations."""
    import torch

    original = torch.compile

    def compile(*args, **kwargs):
        from torch._dynamo import trace_rules

        trace_rules.add(package)
        return original(*args, **kwargs)

    torch.compile = functools.update_wrapper(compile, original)
