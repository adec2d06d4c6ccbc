"""Changes of a line or two that are not worth a file: what they need of a GPU, for the pages.

`python -m shared.evidence.variants` simulates all of them at full size and stores the records.
"""

import dataclasses
import json
import types

from shared.cli import Parser, command_of, run
from shared.common.writing import replaceable, write_text
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import markdown, scripts, stored
from shared.records.origin import origin
from shared.records.record import least_ms, on_host, read_list, unit
from shared.records.units import amount, duration, size

RATE = "args.adam_lr_factor)"
ONE_BY_ONE = ((RATE, "args.adam_lr_factor, foreach=False)"),)
FUSED = (RATE, "args.adam_lr_factor, fused=True)")
ON_HOST = ("logits = model(x)", "with torch.autograd.graph.save_on_cpu(): logits = model(x)")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A script with a small change.

    Attributes:
        table: where it is shown.
        words: what is changed; it identifies the variant.
        script: such as "05_grad_accum/train".
        replaced: (text, what stands in its place) in the script's source.
        batch_size: images per update; None for the script's.
        against: the words of the variant that it is compared with; None if it is the first.
        model: of texts; None for the preset's.
    """

    table: str
    words: str
    script: str
    replaced: tuple = ()
    batch_size: int | None = None
    against: str | None = None
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
        return module


ADAM = "05_grad_accum/train"


def _group(table, first, *others):
    """Returns variants of 05: the script as it is, and others, (words, replaced)."""
    changed = (Variant(table, words, ADAM, replaced, against=first) for words, replaced in others)
    return Variant(table, first, ADAM), *changed


def _in_backward(n):
    """Returns 04 with n images at once, and the side road with as many."""
    names = "04_batchsize/train", "06_sgd/adam_in_backward"
    words = [f"{name}, {n} image{'s' * (n > 1)}" for name in names]
    parent = Variant("in backward", words[0], names[0], batch_size=n)
    return parent, Variant("in backward", words[1], names[1], batch_size=n, against=words[0])


IN_BF16 = (('"32-true"', '"bf16-true"'),)
PARTS = "sum(checkpoint(loss_of, head, h, y, use_reentrant=False) for h, y in parts)"
FUSED_LOSS = "F.linear_cross_entropy(hidden.flatten(0, 1), head.weight, labels.flatten()"
FUSED_LOSS += ', reduction="sum", options=torch.nn.LinearCrossEntropyOptions())'


def _of_texts(table, model, first, *others):
    """Returns variants of scripts of 11: the first, and others; (words, script, replaced)."""
    found = [
        Variant(table, words, f"11_llm/{script}", *more, model=model)
        for words, script, *more in (first, *others)
    ]
    return found[0], *(dataclasses.replace(v, against=first[0]) for v in found[1:])


DDP, ZERO1 = "08_fsdp/ddp", "08_fsdp/zero1"
WITHOUT_VIEW = (("gradient_as_bucket_view=True", "gradient_as_bucket_view=False"),)
NOT_SHARED = (
    ("optimizer = ZeroRedundancyOptimizer(", "optimizer = torch.optim.Adam("),
    ("torch.optim.Adam, lr=", "lr="),
)
VARIANTS = (
    *_group(
        "step",
        "Adam as it is",
        ("`foreach=False`", ONE_BY_ONE),
        ("`fused=True`", (FUSED,)),
    ),
    *_group(
        "on the host",
        "05 as it is",
        ("activations on the host", (ON_HOST,)),
        ("and `fused=True`", (ON_HOST, FUSED)),
    ),
    *_in_backward(16),
    *_in_backward(4),
    *_in_backward(1),
    Variant(
        "in backward",
        "04_batchsize/train, 1 image, `foreach=False`",
        "04_batchsize/train",
        ONE_BY_ONE,
        batch_size=1,
        against="04_batchsize/train, 1 image",
    ),
    Variant("several devices", "08_fsdp/ddp, with SGD", DDP),
    Variant(
        "several devices",
        "`gradient_as_bucket_view=False`",
        DDP,
        WITHOUT_VIEW,
        against="08_fsdp/ddp, with SGD",
    ),
    Variant("several devices", "DDP with Adam", ZERO1, NOT_SHARED, against="08_fsdp/ddp, with SGD"),
    Variant("several devices", "08_fsdp/zero1", ZERO1, against="DDP with Adam"),
    *_of_texts(
        "few weights learn",
        "google-bert/bert-large-uncased",
        ("BERT-large: before.py", "before"),
        ("lora.py", "lora"),
        ("lora.py in bf16", "lora", IN_BF16),
        ("qlora.py", "qlora"),
        ("qlora.py in bf16", "qlora", IN_BF16),
        ("frozen.py", "frozen"),
        ("lora_sharded.py, on each of 4", "lora_sharded"),
    ),
    *_of_texts(
        "logits",
        "Qwen/Qwen3-0.6B",
        ("Qwen3-0.6B: causal.py", "causal"),
        ("causal_chunked.py", "causal_chunked"),
        ("with `linear_cross_entropy`", "causal_chunked", ((PARTS, FUSED_LOSS),)),
        ("causal.py in bf16", "causal", IN_BF16),
        ("causal_chunked.py in bf16", "causal_chunked", IN_BF16),
    ),
)


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
        peak, before = (
            records[w]["train"]["device_peak_gb"] for w in (v.words, v.against or v.words)
        )
        against = markdown.against(before, peak) if v.against else ""
        sizes = (size(peak), against, size(train["device_reserved_gb"]))
        cells = [*sizes, *([amount(train["host_peak_gb"])] if host else [])]
        lines.append((v.words, *cells, duration(least_ms(records[v.words]))))
    from_where = origin([records[v.words] for v in mine], stored.VARIANTS)
    return "\n".join([*markdown.table(lines), "", *markdown.folded(markdown.ORIGIN, [from_where])])


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    replaceable(stored.VARIANTS)
    command = command_of(["-m", "shared.evidence.variants"], argv)
    found = [{**record, "command": command} for record in simulated().values()]
    write_text(stored.VARIANTS, json.dumps(found, indent=1) + "\n")
    print(f"{stored.VARIANTS.name}: {len(found)} records")


if __name__ == "__main__":
    run(main)
