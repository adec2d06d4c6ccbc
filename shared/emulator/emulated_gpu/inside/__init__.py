"""The part of the emulator inside a process with an emulated GPU; process.py is its interface."""

import os


def write_failure(where, error):
    """Tell the launcher of an error that is no mistake of the program, once."""
    folder = os.environ.get("EMULATED_REPORTS")
    file = os.path.join(folder or "", f"{os.getpid()}.failed")
    if not folder or os.path.exists(file):
        return
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    with open(file, "w") as out:
        out.write(
            f"the emulator failed, not your script, in {where}: {text}; please report this line, "
            "the traceback above and the version of PyTorch"
        )


def prepare(torch):
    """Prepare PyTorch, the module, which has just been imported."""
    try:
        _prepare(torch)
    except Exception as error:
        write_failure("import torch", error)
        raise


def _prepare(torch):
    from emulated_gpu.imports import once_imported
    from emulated_gpu.inside import alone, dynamo, host, kernels, report, sizes, streams, work

    # The host computes small tensors, for which threads would mostly wait for each other; and no
    # result depends on how many cores a machine has.
    torch.set_num_threads(1)
    work.read_rates()
    work.time_hooks()
    kernels.begin()
    once_imported("torchvision", kernels.begin_nms)
    once_imported("triton.runtime.jit", kernels.begin_triton)
    sizes.bound_combinations()
    # Not all of this package: hooks on modules, of why/updates.py, are traced, and do nothing then;
    # and so is what stands for os.environ, which compiled functions ask.
    for module in ("inside", "process", "stand_ins.notes"):
        dynamo.leave_out(f"emulated_gpu.{module}")
    host.begin()
    streams.begin()
    report.begin()
    # A process that becomes another card later does this again: see process.become().
    if int(os.environ.get("EMULATED_ALONE") or 0):
        alone.begin()
