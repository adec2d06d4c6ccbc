"""The program of the process with the emulated GPU: it runs a user's script and makes its record.

`python -m emulated_gpu.why.inside FILE` runs a script as settings.Settings in FILE say.
"""

import dataclasses
import os
import sys
import warnings
from pathlib import Path

import torch

from emulated_gpu import process
from emulated_gpu.texts import UserError
from emulated_gpu.why import failures, history
from emulated_gpu.why.record import make_record
from emulated_gpu.why.script import Run
from emulated_gpu.why.settings import Findings, Settings

# Layers with workspaces of cuDNN.
LIBRARY = torch.nn.modules.conv._ConvNd, torch.nn.RNNBase


def main(file):
    """Run a script, and write its Findings.

    Raises:
        SystemExit: the script has failed, or ended itself; the exit code is the script's own.
        UserError: nothing ran on the GPU, or the script lacks a file.
    """
    settings = Settings.read(file)
    # Of the hooks that watch, which a script does not have.
    warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
    # Otherwise torch.compile() would trace the watch's functions along with the script's.
    for module in ("watch", "cost"):
        process.leave_out_of_compile(f"emulated_gpu.why.{module}")
    run = Run(Path(settings.script), settings.updates, settings.module)
    error = run.run(settings.arguments)
    if isinstance(error, torch.OutOfMemoryError):
        print(failures.traceback_of(run.source, error), end="", file=sys.stderr)
        findings = Findings(out_of_memory_at=failures.line_of(run.source, error))
    else:
        if error:
            failures.handle(run, error)
        interrupted = isinstance(error, KeyboardInterrupt)
        findings = dataclasses.replace(find(run, settings), interrupted=interrupted)
    findings.write(settings.findings)


def find(run, settings):
    """Return the Findings about a Run that has ended."""
    trace = failures.trace_of(run)
    record = make_record(run, trace, settings)
    starts = run.updates.starts
    moments = None
    # The last watched update: it may differ from the first, which allocates optimizer states.
    if settings.with_timeline and len(starts) > 1:
        since, until = (trace.index(number) for number in starts[-2:])
        if since < until:  # else it has allocated nothing
            moments = history.condensed(record, trace, since, until)
    kinds = run.updates.module_types
    grows, grows_by = run.updates.growth()
    return Findings(
        record=record,
        moments=moments,
        **process.allocation_failures(),
        compile_seconds=_compile_seconds(),
        trained=run.updates.loaded is not None,
        has_convolutions=any(issubclass(kind, LIBRARY) for kind in kinds),
        hides_cards="CUDA_VISIBLE_DEVICES" in os.environ,
        grows=grows,
        grows_gb=grows_by / 1e9,
        grows_at=trace.grown_at(grows, *run.updates.grown()) if grows else None,
    )


def _compile_seconds():
    """Return the seconds that torch.compile() took, 0 if the script does not use it."""
    if "torch._dynamo" not in sys.modules:
        return 0
    # Imported late: it takes seconds, and a script that compiles has done it already.
    from torch._dynamo.utils import calculate_time_spent

    return calculate_time_spent().get("total_wall_time", 0)


if __name__ == "__main__":
    sys.path.pop(0)  # the current folder, where -m looks; a script's own comes instead
    try:
        main(sys.argv[1])
    except UserError as mistake:
        print(f"\nemulated-gpu: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
