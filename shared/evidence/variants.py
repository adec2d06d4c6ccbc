"""GPU memory of changes of a line or two that are not worth a file, for the pages.

`python -m shared.evidence.predicted variants` runs all of them at full size on emulated GPUs,
`python -m shared.evidence.variants` measures some of them with the tiny model, on a CPU.
"""

import dataclasses
import operator
import tomllib
import types
from pathlib import Path

from shared.cli import Parser
from shared.emulator.cards import CARDS
from shared.evidence import kept
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.stage import predict
from shared.records import markdown, scripts, stored
from shared.records.views import amount, duration, least_ms, on_host, origin, read_list, size, unit


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
    card: str = "a100"
    expandable: bool = False
    tiny: bool = False  # whether to measure the tiny model, too
    mend: str | None = None  # the correction, if the change is a mistake

    @property
    def text(self):
        """The source of the changed script."""
        path = scripts.get(self.script).path
        text = path.read_text()
        for old, new in self.replaced:
            assert text.count(old) == 1, f"{self.words}: {old} is not in {path}"
            text = text.replace(old, new)
        return text

    def load(self):
        """Return the changed script as a module."""
        script = scripts.get(self.script)
        module = types.ModuleType(script.file)
        module.__file__ = str(script.path)
        exec(compile(self.text, script.path, "exec"), vars(module))
        module.TASK = (vars(module).get("cli") or module.causal).TASK
        return module


def every():
    """Return the variants of variants.toml."""
    found = []
    told = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for group in told["groups"]:
        variants = group.pop("variants")
        for n, its in enumerate(variants):
            against = {"against": variants[0]["words"]} if n else {}
            found.append(Variant(**{**against, **group, **its}))
    return found


VARIANTS = every()
MEASURED = [variant for variant in VARIANTS if variant.tiny]
UPDATES = 3  # some mistakes show from the third update on


def emulate(variant):
    """Return the record of a variant on an emulated GPU; run it in a process of its own."""
    scripts.Script.load = lambda script: variant.load()
    names = "model", "batch_size", "max_length", "devices", "expandable"
    same = {key: getattr(variant, key) for key in names}
    return predict(variant.script, Wanted("full", card=CARDS[variant.card], **same))


def measure(variant):
    """Return the record of a variant's run with the tiny model, in a process of its own."""
    return variant.load().main(["--preset", "tiny", "--max-steps", str(UPDATES)])


def recorded():
    """Return the stored predictions, {words: record}."""
    records = stored.predicted(stored.VARIANTS)
    return dict(zip((variant.words for variant in VARIANTS), records, strict=True))


def measured():
    """Return the stored measurements of the tiny model, {words: record}."""
    records = read_list(stored.TINY_VARIANTS)
    return dict(zip((variant.words for variant in MEASURED), records, strict=True))


def part(folder, table=None):
    """Return the table of a group of variants; without one, where the figures of all come from."""
    records = recorded()
    if not table:
        return origin([*records.values()], stored.PREDICTED, what="the variants")
    mine = [v for v in VARIANTS if v.table == table]
    host = any(on_host(records[v.words]) for v in mine)
    what, tiny = unit(records[mine[0].words]), {}
    last = (f"least time for one of the {what}, on one GPU",)
    if mine[0].tiny:
        tiny = measured()
        last = "tiny: measured", "correction"
    lines = [("", "allocated", "change", "reserved", *(["host"] if host else []), *last)]
    for v in mine:
        train = records[v.words]["train"]
        both = v.words, v.against or v.words
        peak, before = (records[words]["train"]["device_peak_gb"] for words in both)
        against = markdown.against(before, peak) if v.against else ""
        sizes = (size(peak), against, size(train["device_reserved_gb"]))
        cells = [*sizes, *([amount(train["host_peak_gb"])] if host else [])]
        if tiny:
            cells += [size(tiny[v.words]["train"]["device_peak_gb"]), v.mend or ""]
        else:
            cells += [duration(least_ms(records[v.words]))]
        lines.append((v.words, *cells))
    return markdown.text(lines)


def grown(folder):
    """Return a table of the memory reserved by default and with expandable segments."""
    key = operator.itemgetter("model", "script", "world_size")
    # The last record of a model has all techniques.
    default = {key(r): r for r in stored.predicted(stored.STAGES, stored.TEXT)}
    mine = {v.words: recorded()[v.words] for v in VARIANTS if v.expandable}
    lines = [("", "allocated", "reserved", "expandable: allocated", "reserved", "change")]
    for words, r in mine.items():
        both = [its["train"] for its in (default[key(r)], r)]
        peaks = [t[f"device_{name}_gb"] for t in both for name in ("peak", "reserved")]
        lines.append((words, *map(size, peaks), markdown.compared(peaks[1], peaks[3])))
    said = "Model, batch and card are those of the other tables unless a row names others."
    return kept.table(lines, [*mine.values()], stored.PREDICTED, said)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    records = run_jobs([(measure, variant) for variant in MEASURED], emulated=False)
    kept.store(stored.TINY_VARIANTS, "variants", records)


if __name__ == "__main__":
    main()
