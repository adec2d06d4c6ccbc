"""Changes of a line or two that are not worth a file: what they need of a GPU, for the pages.

`python -m shared.evidence.variants` simulates all of them at full size and stores the records.
"""

import dataclasses
import tomllib
import types
from pathlib import Path

from shared.cli import Parser
from shared.evidence import kept
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import markdown, scripts, stored
from shared.records.views import amount, duration, least_ms, on_host, read_list, size, unit


@dataclasses.dataclass(frozen=True)
class Variant:
    """A script with a small change."""

    table: str  # where it is shown
    words: str  # what is changed; it identifies the variant
    script: str
    replaced: tuple = ()  # (text, what stands in its place) in the script's source
    batch_size: int | None = None
    against: str | None = None  # the words of the variant that it is compared with
    model: str | None = None

    def load(self):
        """Returns the changed script as a module."""
        script = scripts.get(self.script)
        text = script.path.read_text()
        for old, new in self.replaced:
            assert text.count(old) == 1, f"{self.words}: {old} is not in {script.path}"
            text = text.replace(old, new)
        module = types.ModuleType(script.file)
        module.__file__ = str(script.path)
        exec(compile(text, script.path, "exec"), vars(module))
        module.TASK = (vars(module).get("cli") or module.causal).TASK
        return module


def every():
    """Returns the variants of variants.toml."""
    found = []
    told = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for group in told["groups"]:
        variants = group.pop("variants")
        for n, its in enumerate(variants):
            against = {"against": variants[0]["words"]} if n else {}
            found.append(Variant(**{**against, **group, **its}))
    return found


VARIANTS = every()


def simulate(variant):
    """Returns the record of a variant; in a process that does nothing else."""
    scripts.Script.load = lambda script: variant.load()
    options = {"model": variant.model, "batch_size": variant.batch_size}
    return predict(variant.script, Wanted("gpu", "full", **options))


def simulated(variants=VARIANTS):
    """Returns {words: record}."""
    records = run_jobs([(simulate, variant) for variant in variants])
    return {variant.words: record for variant, record in zip(variants, records)}


def part(folder, table):
    """Returns the table of a group of variants."""
    records = dict(zip((v.words for v in VARIANTS), read_list(stored.VARIANTS), strict=True))
    mine = [v for v in VARIANTS if v.table == table]
    host = any(on_host(records[v.words]) for v in mine)
    what = unit(records[mine[0].words])
    each = f"least time for one of the {what}, on one GPU"
    lines = [("", "allocated", "", "reserved", *(["host"] if host else []), each)]
    for v in mine:
        train = records[v.words]["train"]
        both = v.words, v.against or v.words
        peak, before = (records[words]["train"]["device_peak_gb"] for words in both)
        against = markdown.against(before, peak) if v.against else ""
        sizes = (size(peak), against, size(train["device_reserved_gb"]))
        cells = [*sizes, *([amount(train["host_peak_gb"])] if host else [])]
        lines.append((v.words, *cells, duration(least_ms(records[v.words]))))
    return kept.table(lines, [records[v.words] for v in mine], stored.VARIANTS)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    kept.store(stored.VARIANTS, "variants", simulated().values())


if __name__ == "__main__":
    main()
