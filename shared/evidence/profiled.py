"""Allocations of an update that PyTorch's profiler counts and the ledger does not.

`python -m shared.evidence.profiled` trains the tiny model with every plain.py. The ledger counts
the tensors of a run. The profiler sees each allocation on the host, including the workspaces of
kernels and gloo's copies of what processes send each other.
"""

import itertools
import tempfile
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from shared.cli import Parser
from shared.evidence import kept
from shared.memory.blocks import tensors
from shared.memory.phases import LEDGER_UPDATES
from shared.records import markdown, scripts, stored, views
from shared.records.record import append
from shared.records.running import side_by_side


def train(name, file):
    """Train in this process, with the profiler on in the first update without the ledger.

    Append a record to the file, with "profiled_gb", the peak of that update.
    """
    script, peaks = scripts.get(name).load(), []
    train_step = script.train_step

    def watched(model, optimizer, images, labels, meter):
        arguments = model, optimizer, images, labels, meter
        if meter.steps < LEDGER_UPDATES:
            return train_step(*arguments)
        before = sum(change for _, change in meter.memory.ledger.events)
        before += sum(t.nbytes for t in tensors((images, labels)))  # unknown to the ledger
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            train_step(*arguments)
        events = (e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]")
        events = sorted(events, key=lambda event: event.start_ns())
        peaks.append(before + max(itertools.accumulate(event.nbytes() for event in events)))

    script.train_step = watched
    record = script.main(["--preset", "tiny", "--max-steps", str(LEDGER_UPDATES + 1)])
    append(file, {**record, "profiled_gb": peaks[0] / 1e9})


def part(folder):
    """Return by how much the profiler's peaks exceed the ledger's, in Markdown."""
    records = views.read_list(stored.PROFILED)
    more = {}
    for _, group in itertools.groupby(records, key=lambda r: r["script"]):
        processes = [*group]
        first = processes[0]
        if first["world_size"] > 1:
            kind = "with several processes, gloo's copies"
        else:
            kind = "in fp32" if first["precision"] == "32-true" else "in 16 bits, kernels' buffers"
        most = max(r["profiled_gb"] for r in processes)
        more.setdefault(kind, []).append(most / first["train"]["device_peak_gb"] - 1)
    lines = []
    for kind, found in more.items():
        both = dict.fromkeys(f"{share:+.1%}" for share in (min(found), max(found)))
        lines.append(f"- {kind}: {' to '.join(both)}")
    note = "Its peaks, compared with the ledger's:"
    return markdown.text(note, lines, markdown.sources(records, stored.PROFILED))


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.jsonl"
        for name in scripts.plain():
            side_by_side(scripts.get(name).load().DEVICES, train, name, file)
        kept.store(stored.PROFILED, "profiled", views.read(file)[0])


if __name__ == "__main__":
    main()
