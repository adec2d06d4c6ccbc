"""From a laptop to a thousand GPUs: 11_llm with large models, one rank of many, for its page.

`python -m shared.evidence.scale` emulates them, one after the other, and stores the records: what a
GPU needs, and what it took this computer to find out.
"""

import resource

from shared.cli import Parser
from shared.emulator.cards import CARDS
from shared.evidence import kept
from shared.predict.jobs import Wanted, one_by_one, run_jobs
from shared.predict.stage import predict
from shared.records import stored, views
from shared.records.views import number

SCRIPT = "11_llm/train"
TOKENS = 8192  # of the one text of each GPU
RUNS = (
    ("meta-llama/Meta-Llama-3-8B", 8),
    ("meta-llama/Meta-Llama-3-8B", 128),
    ("meta-llama/Meta-Llama-3-70B", 64),
    ("meta-llama/Meta-Llama-3-70B", 256),
    ("meta-llama/Llama-3.1-405B", 512),
    ("meta-llama/Llama-3.1-405B", 1024),
)


def wanted(model, gpus):
    """Return the settings of a run: all techniques, but nothing on the host."""
    *without_offload, _ = one_by_one(SCRIPT).techniques(gpus)
    return Wanted(
        "full",
        model=model,
        max_length=TOKENS,
        batch_size=gpus,
        devices=gpus,
        techniques=tuple(without_offload),
        card=CARDS["h100"],
        card_gb=CARDS["h100"].gb,  # all that PyTorch may reserve
    )


def emulate(name, options):
    """Return the record of a run, with the memory in GB that it took here."""
    found = predict(name, options)
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**found, "here_gb": kib * 1024 / 1e9}


def part(folder):
    """Return the table of the stored runs."""
    records = views.read_list(stored.SCALE)
    rows = [("model", "GPUs", "GB on each", "reserved", "found in")]
    for r in records:
        sizes = (r["train"][peak] for peak in ("device_peak_gb", "device_reserved_gb"))
        here = f"{r['seconds']:.0f} s, {r['here_gb']:.1f} GB"
        model = r["model"].rpartition("/")[-1]
        rows.append((model, str(r["world_size"]), *map(number, sizes), here))
    return kept.table(rows, records, stored.SCALE)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    # One after the other, so that the seconds are those of a run by itself.
    records = [run_jobs([(emulate, SCRIPT, wanted(*run))])[0] for run in RUNS]
    kept.store(stored.SCALE, "scale", records)


if __name__ == "__main__":
    main()
