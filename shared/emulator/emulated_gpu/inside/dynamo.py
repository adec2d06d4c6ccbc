"""The emulator's own functions, kept out of torch.compile()."""

from emulated_gpu.imports import once_imported


def leave_out(module):
    """Keep torch.compile() from tracing functions of a module, such as those of a watcher."""
    # Once: PyTorch compares every file with all that it has been told to leave out.
    once_imported("torch._dynamo.trace_rules", lambda rules: rules.add(module))
