"""The tables of large models on many GPUs: the repository's, and torchtitan's."""

from shared.lab.records import markdown, stored
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
    rows = [("model", "GPUs", "GB on each", "reserved", "emulated in")]
    for r in records:
        sizes = (r["train"][peak] for peak in ("device_peak_gb", "device_reserved_gb"))
        effort = f"{r['seconds']:.0f} s, {r['here_gb']:.1f} GB"  # of the emulating computer
        # Without the organization that has published it.
        model = r["model"].rpartition("/")[-1]
        gpus = f"{r['world_size']}, in groups of {r['group']}" if r["group"] else r["world_size"]
        rows.append((model, str(gpus), *map(number, sizes), effort))
    return markdown.text(rows, markdown.sources(records, stored.SCALE), titan())


def titan():
    """Return the rows of a table: torchtitan's figures with more than FSDP."""
    rows = [("torchtitan, reserved", "published", "emulated")]
    for r in stored.read(stored.PUBLISHED):
        if r["source"] == TITAN and r["what"] in SHOWN:
            rows.append((r["what"], number(r["published_gb"]), number(r["emulated_gb"])))
    return rows
