"""What runs inside a process with an emulated GPU: values, cheap hosts, other ranks, the report."""

import os


def prepare():
    """Prepare PyTorch, which has just been imported."""
    from emulated_gpu.inside import alone, host, report, values

    values.begin()
    leave_out("emulated_gpu")
    host.begin()
    report.begin()
    if int(os.environ.get("EMULATED_ALONE") or 0):
        alone.begin()


def leave_out(package):
    """Let torch.compile() leave out the functions of a package that stand around operations."""
    from sitecustomize import once_imported

    # Once: PyTorch compares every file with all that it has been told to leave out.
    once_imported("torch._dynamo.trace_rules", lambda rules: rules.add(package))
