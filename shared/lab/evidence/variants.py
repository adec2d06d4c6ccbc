"""GPU memory of variants of scripts, each a change of a line or two, for the pages.

`python -m shared records predicted variants` runs all of them at full size on emulated GPUs,
`python -m shared records variants` measures some of them with the tiny model, on a CPU.
"""

import dataclasses
import tomllib
from pathlib import Path

from emulated_gpu.cards import CARDS
from emulated_gpu.launch import HOST_US
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts, stored
from shared.run.cli import Parser


@dataclasses.dataclass(frozen=True)
class Variant:
    """A script with a small change."""

    table: str  # the table that shows it
    title: str  # the change in a few words; identifies the variant
    script: str
    replaced: tuple = ()  # (text, its replacement) in the script's source
    batch_size: int | None = None
    against: str | None = None  # the title of the variant that it is compared with
    model: str | None = None
    max_length: int | None = None
    devices: int | None = None
    rank: int | None = None
    card: str = "a100"
    expandable: bool = False
    host_us: float = HOST_US
    tiny: bool = False  # whether to measure the tiny model, too
    mend: str | None = None  # the correction, if the change is a mistake

    @property
    def changed_script(self):
        """The Script with the replacements."""
        return scripts.changed(self.script, self.replaced)


def every():
    """Return the variants of variants.toml."""
    groups = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["groups"]
    all_variants = []
    for group in groups:
        # What is left in the group are the settings that its variants share.
        variants = group.pop("variants")
        for n, fields in enumerate(variants):
            against = {"against": variants[0]["title"]} if n else {}
            all_variants.append(Variant(**{**against, **group, **fields}))
    return all_variants


VARIANTS = every()
MEASURED = [variant for variant in VARIANTS if variant.tiny]
UPDATES = 3  # some mistakes show from the third update on


def emulate(variant):
    """Return the record of a variant on an emulated GPU; run it in a process of its own."""
    settings = Wanted(
        "full",
        model=variant.model,
        max_length=variant.max_length,
        batch_size=variant.batch_size,
        devices=variant.devices,
        rank=variant.rank,
        card=CARDS[variant.card],
        expandable=variant.expandable,
        host_us=variant.host_us,
    )
    return predict(variant.changed_script, settings)


def measure(variant):
    """Return the record of a variant's run with the tiny model, in a process of its own."""
    return variant.changed_script.load().main(["--preset", "tiny", "--max-steps", str(UPDATES)])


def recorded():
    """Return the stored predictions, {title: record}."""
    records = stored.predicted(stored.VARIANTS)
    # In order, since a record has its script but no title; strict finds what is stale.
    return dict(zip((variant.title for variant in VARIANTS), records, strict=True))


def measured():
    """Return the stored measurements of the tiny model, {title: record}."""
    records = stored.read(stored.TINY_VARIANTS)
    return dict(zip((variant.title for variant in MEASURED), records, strict=True))


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    records = run_jobs([(measure, variant) for variant in MEASURED], emulated=False)
    stored.write_made_by("variants", stored.TINY_VARIANTS, records)
