"""The part of the emulator inside a process with an emulated GPU; process.py is its interface."""

import os


def prepare(torch):
    """Prepare PyTorch, the module, which has just been imported."""
    from emulated_gpu.imports import once_imported
    from emulated_gpu.inside import alone, dynamo, host, kernels, report, sizes, streams, work

    # The host computes small tensors, for which threads would mostly wait for each other; and no
    # result depends on how many cores a machine has.
    torch.set_num_threads(1)
    work.read_rates()
    kernels.begin()
    once_imported("torchvision", kernels.begin_nms)
    sizes.bound_combinations()
    dynamo.leave_out("emulated_gpu")
    host.begin()
    streams.begin()
    report.begin()
    # A process that becomes another card later does this again: see process.become().
    if int(os.environ.get("EMULATED_ALONE") or 0):
        alone.begin()
