"""The tables of large models on many GPUs: the repository's, and torchtitan's."""

from shared.lab.lessons import proof
from shared.lab.records import markdown, stored
from shared.lab.records.columns import Column, in_markdown
from shared.lab.records.formats import number

# The source in shared/emulator/proof/sources.toml, and those of its rows that use more than FSDP.
TITAN = "torchtitan 2024"
SHOWN = (
    "70B, 256 GPUs, tensor parallel 8",
    "405B, 512 GPUs, pipeline 1F1B",
    "405B, 8 texts of 262,144 tokens, context parallel 8",
)


def part(folder):
    """Return the table of the stored runs, and one of torchtitan's."""
    records = stored.read(stored.SCALE)
    columns = [
        # Without the organization that has published it.
        Column("model", lambda r: r["model"].rpartition("/")[-1]),
        Column("GPUs", gpus),
        Column("GB on each", "train.device_peak_gb", number),
        Column("reserved", "train.device_reserved_gb", number),
        # By the emulating computer.
        Column("emulated in", "{seconds:.0f} s, {here_gb:.1f} GB".format_map),
    ]
    published = stored.read(stored.PUBLISHED)
    shown = [r for r in published if r["source"] == TITAN and r["what"] in SHOWN]
    titan = proof.sizes("torchtitan, reserved", "published", shown)
    sources = markdown.sources(records, stored.SCALE)
    return markdown.text(in_markdown(columns, records), sources, titan)


def gpus(record):
    """Return the number of GPUs, and of those in each group, as text."""
    groups = f", in groups of {record['group']}" if record["group"] else ""
    return f"{record['world_size']}{groups}"
