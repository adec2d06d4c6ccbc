"""Changes of a line or two that are not worth a file: what they need of a GPU, for the pages.

`python -m shared.evidence.variants` simulates all of them at full size and stores the records.
"""

import dataclasses
import types

from shared.cli import Parser
from shared.evidence import kept
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import markdown, scripts, stored
from shared.records.views import amount, duration, least_ms, on_host, read_list, size, unit


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
        module.TASK = (vars(module).get("cli") or module.causal).TASK
        return module


def group(table, first, *others, **options):
    """Returns the variants of a table: others are compared with the first.

    Args:
        table: where they are shown.
        first, others: (words, script, replaced); without the last one for the script as it is.
        options: further fields of all of them.
    """
    changed = [Variant(table, *other, against=first[0], **options) for other in others]
    return Variant(table, *first, **options), *changed


ADAM, BATCH, IN_BACKWARD = "05_grad_accum/train", "04_batchsize/train", "06_sgd/adam_in_backward"
RATE = "LR[args.preset])"
ONE_BY_ONE = ((RATE, "LR[args.preset], foreach=False)"),)
FUSED = ((RATE, "LR[args.preset], fused=True)"),)
LOGITS = "logits = model(x)"
ON_HOST = ((LOGITS, f"with torch.autograd.graph.save_on_cpu(): {LOGITS}"),)
DDP, ZERO1 = "08_fsdp/ddp", "08_fsdp/zero1"
WITHOUT_VIEW = (("gradient_as_bucket_view=True", "gradient_as_bucket_view=False"),)
NOT_SHARED = (
    ("optimizer = ZeroRedundancyOptimizer(", "optimizer = torch.optim.Adam("),
    ("parameters(), torch.optim.Adam, lr=", "parameters(), lr="),
)
LORA, QLORA, CHUNKED = "11_llm/lora", "11_llm/qlora", "11_llm/causal_chunked"
IN_BF16 = (('"32-true"', '"bf16-true"'),)
FUSED_LOSS = (
    (
        "sum(checkpoint(loss_of, head, h, y, use_reentrant=False) for h, y in parts)",
        "F.linear_cross_entropy(hidden.flatten(0, 1), head.weight, labels.flatten()"
        ', reduction="sum", options=torch.nn.LinearCrossEntropyOptions())',
    ),
)
VARIANTS = (
    *group(
        "step",
        ("Adam as it is", ADAM),
        ("`foreach=False`", ADAM, ONE_BY_ONE),
        ("`fused=True`", ADAM, FUSED),
    ),
    *group(
        "on the host",
        ("05 as it is", ADAM),
        ("activations on the host", ADAM, ON_HOST),
        ("and `fused=True`", ADAM, ON_HOST + FUSED),
    ),
    *group(
        "in backward",
        (f"{BATCH}, 16 images", BATCH),
        (f"{IN_BACKWARD}, 16 images", IN_BACKWARD),
        batch_size=16,
    ),
    *group(
        "in backward",
        (f"{BATCH}, 4 images", BATCH),
        (f"{IN_BACKWARD}, 4 images", IN_BACKWARD),
        batch_size=4,
    ),
    *group(
        "in backward",
        (f"{BATCH}, 1 image", BATCH),
        (f"{IN_BACKWARD}, 1 image", IN_BACKWARD),
        (f"{BATCH}, 1 image, `foreach=False`", BATCH, ONE_BY_ONE),
        batch_size=1,
    ),
    *group(
        "several devices",
        ("08_fsdp/ddp, with SGD", DDP),
        ("`gradient_as_bucket_view=False`", DDP, WITHOUT_VIEW),
        ("DDP with Adam", ZERO1, NOT_SHARED),
    ),
    Variant("several devices", "08_fsdp/zero1", ZERO1, against="DDP with Adam"),
    *group(
        "few weights learn",
        ("BERT-large: before.py", "11_llm/before"),
        ("lora.py", LORA),
        ("lora.py in bf16", LORA, IN_BF16),
        ("qlora.py", QLORA),
        ("qlora.py in bf16", QLORA, IN_BF16),
        ("frozen.py", "11_llm/frozen"),
        ("lora_sharded.py, on each of 4", "11_llm/lora_sharded"),
        model="google-bert/bert-large-uncased",
    ),
    *group(
        "logits",
        ("Qwen3-0.6B: causal.py", "11_llm/causal"),
        ("causal_chunked.py", CHUNKED),
        ("with `linear_cross_entropy`", CHUNKED, FUSED_LOSS),
        ("causal.py in bf16", "11_llm/causal", IN_BF16),
        ("causal_chunked.py in bf16", CHUNKED, IN_BF16),
        model="Qwen/Qwen3-0.6B",
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
    return kept.table(lines, [records[v.words] for v in mine], stored.VARIANTS)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    kept.store(stored.VARIANTS, "variants", simulated().values())


if __name__ == "__main__":
    main()
