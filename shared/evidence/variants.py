"""GPU memory of changes of a line or two that are not worth a file, for the pages.

`python -m shared.evidence.variants` simulates all of them at full size, measures some of them with
the tiny model, and stores the records.
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
from shared.predict.simulation import predict
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


def simulate(variant, **tiny):
    """Return the record of a variant; run it in a process of its own."""
    scripts.Script.load = lambda script: variant.load()
    if tiny:
        return predict(variant.script, Wanted("cpu", "tiny", **tiny))
    names = "model", "batch_size", "max_length", "devices", "expandable"
    same = {key: getattr(variant, key) for key in names}
    same |= {"card": CARDS[variant.card], "updates": UPDATES if variant.tiny else None}
    return predict(variant.script, Wanted("gpu", "full", **same))


def measure(variant):
    """Return the record of a variant's run with the tiny model, in a process of its own."""
    return variant.load().main(["--preset", "tiny", "--max-steps", str(UPDATES)])


def simulated(variants=VARIANTS, function=simulate):
    """Return the records of variants from a function above, {words: record}."""
    records = run_jobs([(function, variant) for variant in variants])
    return {variant.words: record for variant, record in zip(variants, records)}


def recorded(variants=VARIANTS, file=stored.VARIANTS):
    """Return the stored records, {words: record}."""
    return dict(zip((variant.words for variant in variants), read_list(file), strict=True))


def part(folder, table=None):
    """Return the table of a group of variants; without one, where the figures of all come from."""
    records = recorded()
    if not table:
        return origin([*records.values()], stored.VARIANTS, what="the variants")
    mine = [v for v in VARIANTS if v.table == table]
    host = any(on_host(records[v.words]) for v in mine)
    what, tiny = unit(records[mine[0].words]), {}
    last = (f"least time for one of the {what}, on one GPU",)
    if mine[0].tiny:
        tiny = recorded(MEASURED, stored.TINY_VARIANTS)
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
    default = {key(r): r for file in (stored.PREDICTED, stored.TEXT) for r in read_list(file)}
    mine = {v.words: recorded()[v.words] for v in VARIANTS if v.expandable}
    lines = [("", "allocated", "reserved", "expandable: allocated", "reserved", "change")]
    for words, r in mine.items():
        both = [its["train"] for its in (default[key(r)], r)]
        peaks = [t[f"device_{name}_gb"] for t in both for name in ("peak", "reserved")]
        lines.append((words, *map(size, peaks), markdown.compared(peaks[1], peaks[3])))
    said = "Model, batch and card are those of the other tables unless a row names others."
    return kept.table(lines, [*mine.values()], stored.VARIANTS, said)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    kept.store(stored.VARIANTS, "variants", simulated().values())
    kept.store(stored.TINY_VARIANTS, "variants", simulated(MEASURED, measure).values())


if __name__ == "__main__":
    main()
