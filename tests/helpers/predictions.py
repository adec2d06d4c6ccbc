"""Predictions for tests, and comparisons of their tensors with those of the script on a CPU."""

from types import SimpleNamespace
from unittest import mock

from helpers import on_gpu
from shared.lab.predict import command, stage
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.records import scripts
from shared.lab.records.reading import by_script
from shared.memory.accounting.blocks import summit
from shared.memory.phases import Phases


def predicted(*argv):
    """Run the predictor's command: {script: record}."""
    return by_script(command.main([*map(str, argv)]))


def predict_all(names, *args, **sizes):
    """Return the predictions of scripts for a Wanted of these arguments, {script: record}.

    Each also has "tensors", {phase: {category: bytes}}: see in_one_memory().
    """
    wanted = Wanted(*args, **sizes)
    return by_script(run_jobs([(with_tensors, scripts.get(name), wanted) for name in names]))


def with_tensors(script, options):
    """Return the prediction of a script, with its "tensors"."""
    found, end_phase = [], Phases._phase

    def watched(phases, since):
        found.append(in_one_memory(phases.ledger.events, since))
        return end_phase(phases, since)

    with mock.patch.object(Phases, "_phase", watched):
        record = stage.predict(script, options)
    return {**record, "tensors": dict(zip(("load", "train"), found, strict=True))}


def in_one_memory(events, since):
    """Return the bytes of each category at the peak of a ledger's log, as a CPU has them.

    There, device and host are one, blocks are not rounded, and libraries have no workspaces.
    """
    alike = [
        (SimpleNamespace(device="cpu", label=block.label), change)
        for block, change in events
        if block.device in ("cpu", "cuda")  # not in a mapped file
    ]
    return summit(alike, "cpu", since)[1]


def assert_same_tensors(name, on_cpu, predicted):
    """Assert that a script has the same tensors on a CPU and on an emulated GPU, to the byte.

    on_gpu.py has the exceptions.
    """
    phases = {"load": [on_gpu.while_loading(name)]}
    if name not in on_gpu.MOVING:
        phases["train"] = on_gpu.in_training(name, on_cpu)
    for phase, differences in phases.items():
        held = {label: round(gb * 1e9) for label, gb in on_cpu[phase]["breakdown_gb"].items()}
        wanted = [
            {label: held.get(label, 0) + more.get(label, 0) for label in {**held, **more}}
            for more in differences
        ]
        assert predicted["tensors"][phase] in wanted, (name, phase)


def tensors_gb(phase):
    """Return the GB of tensors by category, which can be calculated by hand."""
    breakdown = phase["breakdown_gb"].items()
    return {label: gb for label, gb in breakdown if label not in ("workspaces", "rounding")}
