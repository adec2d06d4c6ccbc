"""Changes of a line or two that are not worth a file: what they need of a GPU, for the pages.

`python -m shared.lessons.variants` simulates all of them at full size and stores the records.
"""

import dataclasses
import json
import types

from shared.common import scripts
from shared.common.ending import run
from shared.common.options import Parser, command_of
from shared.common.writing import replaceable, write_text
from shared.lessons import markdown, stored
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records.origin import origin
from shared.records.record import read_list
from shared.records.units import amount, change, size

RATE = "args.adam_lr_factor)"
FUSED = (RATE, "args.adam_lr_factor, fused=True)")
ON_HOST = ("logits = model(x)", "with torch.autograd.graph.save_on_cpu(): logits = model(x)")
IN_BACKWARD = "06_sgd/adam_in_backward"


@dataclasses.dataclass(frozen=True)
class Variant:
    """A script with a small change.

    Attributes:
        table: where it is shown.
        words: what is changed; it identifies the variant.
        script: such as "05_grad_accum/train".
        replaced: (text, what stands in its place) in the script's source.
        batch_size: images per update; None for the script's.
    """

    table: str
    words: str
    script: str
    replaced: tuple = ()
    batch_size: int | None = None

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
        return module


ADAM = "05_grad_accum/train"
VARIANTS = (
    Variant("step", "Adam as it is", ADAM),
    Variant("step", "`foreach=False`", ADAM, ((RATE, "args.adam_lr_factor, foreach=False)"),)),
    Variant("step", "`fused=True`", ADAM, (FUSED,)),
    Variant("on the host", "05 as it is", ADAM),
    Variant("on the host", "activations on the host", ADAM, (ON_HOST,)),
    Variant("on the host", "and `fused=True`", ADAM, (ON_HOST, FUSED)),
    *(
        Variant("in backward", f"{name}, {n} image{'s' * (n > 1)}", name, batch_size=n)
        for n in (16, 4, 1)
        for name in ("04_batchsize/train", IN_BACKWARD)
    ),
)


def simulate(variant):
    """Returns the record of a variant; in a process that does nothing else."""
    scripts.Script.load = lambda script: variant.load()
    return predict(variant.script, Wanted("gpu", "full", batch_size=variant.batch_size))


def simulated(variants=VARIANTS):
    """Returns {words: record}."""
    records = run_jobs([(simulate, variant) for variant in variants])
    return {variant.words: record for variant, record in zip(variants, records)}


def part(folder, table):
    """Returns the table of a group of variants; each is compared with the group's first."""
    stored_records = dict(zip((v.words for v in VARIANTS), read_list(stored.VARIANTS), strict=True))
    rows = {v.words: stored_records[v.words] for v in VARIANTS if v.table == table}
    first = next(iter(rows.values()))["train"]["device_peak_gb"]
    lines = [("", "allocated", "reserved", "allocated, against the first", "host")]
    for words, r in rows.items():
        train = r["train"]
        peak = train["device_peak_gb"]
        sizes = (size(peak), size(train["device_reserved_gb"]), change(first, peak))
        lines.append((words, *sizes, amount(train["host_peak_gb"])))
    from_where = origin(list(rows.values()), stored.VARIANTS)
    return "\n".join([*markdown.table(lines), "", *markdown.folded(markdown.ORIGIN, [from_where])])


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    replaceable(stored.VARIANTS)
    command = command_of(["-m", "shared.lessons.variants"], argv)
    found = [{**record, "command": command} for record in simulated().values()]
    write_text(stored.VARIANTS, json.dumps(found, indent=1) + "\n")
    print(f"{stored.VARIANTS.name}: {len(found)} records")


if __name__ == "__main__":
    run(main)
