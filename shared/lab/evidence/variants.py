"""GPU memory of changes of a line or two that are not worth a file, for the pages.

`python -m shared predicted variants` runs all of them at full size on emulated GPUs,
`python -m shared variants` measures some of them with the tiny model, on a CPU.
"""

import dataclasses
import operator
import tomllib
from pathlib import Path
from unittest import mock

from emulated_gpu.cards import CARDS
from shared.cli import Parser
from shared.lab.evidence import kept
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import markdown, scripts, stored
from shared.lab.records.formats import duration, number
from shared.lab.records.origin import origin
from shared.lab.records.reading import least_ms, on_host


@dataclasses.dataclass(frozen=True)
class Variant:
    """A script with a small change."""

    table: str  # the table that shows it
    words: str  # the change; identifies the variant
    script: str
    replaced: tuple = ()  # (text, its replacement) in the script's source
    batch_size: int | None = None
    against: str | None = None  # the words of the variant that it is compared with
    model: str | None = None
    max_length: int | None = None
    devices: int | None = None
    rank: int | None = None
    card: str = "a100"
    expandable: bool = False
    clock_us: float = 0
    tiny: bool = False  # whether to measure the tiny model, too
    mend: str | None = None  # the correction, if the change is a mistake

    @property
    def changed_script(self):
        return scripts.changed(self.script, self.replaced)


def every():
    """Return the variants of variants.toml."""
    groups = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["groups"]
    all_variants = []
    for group in groups:
        variants = group.pop("variants")
        for n, fields in enumerate(variants):
            against = {"against": variants[0]["words"]} if n else {}
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
        clock_us=variant.clock_us,
    )
    with mock.patch.dict(scripts.every(), {variant.script: variant.changed_script}):
        return predict(variant.script, settings)


def measure(variant):
    """Return the record of a variant's run with the tiny model, in a process of its own."""
    return variant.changed_script.load().main(["--preset", "tiny", "--max-steps", str(UPDATES)])


def recorded():
    """Return the stored predictions, {words: record}."""
    records = stored.predicted(stored.VARIANTS)
    return dict(zip((variant.words for variant in VARIANTS), records, strict=True))


def measured():
    """Return the stored measurements of the tiny model, {words: record}."""
    records = stored.read(stored.TINY_VARIANTS)
    return dict(zip((variant.words for variant in MEASURED), records, strict=True))


def part(folder, table=None):
    """Return the table of a group of variants; without one, where the figures of all come from."""
    records = recorded()
    if not table:
        return origin([*records.values()], stored.PREDICTED, what="the variants")
    mine = [v for v in VARIANTS if v.table == table]
    host = any(on_host(records[v.words]) for v in mine)
    # The memory of this card is scarce, or streams decide about what is reserved.
    tight = mine[0].card != Variant.card or any(v.clock_us for v in mine)
    compared = any(v.against for v in mine)
    heading = ["GB", "allocated"]
    if compared:
        heading.append("change")
    if tight:
        heading.append("reserved")
    if host:
        heading.append("host")
    heading.append("correction" if mine[0].tiny else "ms (bound)")
    rows = [tuple(heading)]
    for v in mine:
        train = records[v.words]["train"]
        peak = train["device_peak_gb"]
        cells = [v.words, number(peak)]
        if v.against:
            before = records[v.against]["train"]["device_peak_gb"]
            cells.append(markdown.against(before, peak))
        elif compared:
            cells.append("")
        if tight:
            cells.append(number(train["device_reserved_gb"]))
        if host:
            cells.append(number(train["host_peak_gb"]))
        ms = duration(least_ms(records[v.words])).removesuffix(" ms")
        cells.append((v.mend or "") if v.tiny else ms)
        rows.append(tuple(cells))
    return markdown.text(rows)


def grown(folder):
    """Return a table of the memory reserved by default and with expandable segments."""
    key = operator.itemgetter("model", "script", "world_size")
    # The last record of a model has all techniques.
    default = {key(r): r for r in stored.predicted(stored.STAGES, stored.TEXT)}
    mine = {v.words: recorded()[v.words] for v in VARIANTS if v.expandable}
    lines, shares = [], []
    for words, r in mine.items():
        usual, expandable = default[key(r)]["train"], r["train"]
        reserved = [phase["device_reserved_gb"] for phase in (usual, expandable)]
        if r["script"] in scripts.ladder():
            shares.append(reserved[1] / reserved[0] - 1)
        else:
            lines.append((words, *map(number, reserved), markdown.compared(*reserved)))
    heading = ("GB reserved", "by default", "expandable", "change")
    ladder = ("01 to 10", "", "", f"{max(shares):+.1%} to {min(shares):+.1%}")
    return kept.table([heading, ladder, *lines], [*mine.values()], stored.PREDICTED)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    records = run_jobs([(measure, variant) for variant in MEASURED], emulated=False)
    kept.store(stored.TINY_VARIANTS, "variants", records)


if __name__ == "__main__":
    main()
