"""The table of techniques in Hugging Face's Trainer and in Accelerate."""

from shared.lab.evidence.hugging_face import TECHNIQUES
from shared.lab.records import markdown, stored
from shared.lab.records.formats import size


def part(folder):
    """Return the table of options and peaks."""
    records = stored.read(stored.HUGGING_FACE)
    table = [("technique", "in the Trainer", "in Accelerate", "peak", "loss after 3 updates")]
    # Two records for each technique, in turn: the Trainer's, and that of before.py.
    for t, in_trainer, in_before in zip(TECHNIQUES, records[::2], records[1::2], strict=True):
        option = "`" + _argument(t.trainer) + "`" if t.trainer else "–"
        both = in_trainer, in_before
        peak = _if_equal(*(size(r["train"]["device_peak_gb"]) for r in both))
        loss = _if_equal(*(f"{r['last_loss']:.4f}" for r in both))
        table.append((t.title, option, t.accelerate, peak, loss))
    # It needs several GPUs, and the stored runs are of one process.
    sharded = ("`fsdp=True`", "`FullyShardedDataParallelPlugin(fsdp_version=2)`")
    table.append(("sharding", *sharded, "not measured", ""))
    note = "One figure where both are equal."
    return markdown.text(table, note, markdown.sources(records, stored.HUGGING_FACE))


def _if_equal(in_trainer, in_before):
    """Return one text for two figures that are the same, else both."""
    return in_trainer if in_trainer == in_before else f"{in_trainer}, before.py {in_before}"


def _argument(option):
    name, *value = option
    value = value[0] if value else "True"  # a switch, such as --bf16
    name = name.removeprefix("--").replace("-", "_")
    # As Python code: numbers and True without quotes.
    return f"{name}={value}" if value == "True" or value.isdigit() else f'{name}="{value}"'
