"""Llama-3-8B on texts of up to a million tokens, on one and on eight H100s, for its page.

`python -m shared records long_context` emulates them and stores the records: one text per update,
in bf16, with more techniques at each step. The script is 11_llm/context_parallel.py with its
weights sharded instead of copied. The first rank of the eight is emulated.
"""

import itertools
from unittest import mock

from emulated_gpu.cards import CARDS
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts, stored
from shared.run.cli import Parser
from shared.text import models

SCRIPT = "11_llm/context_parallel"
MODEL = "meta-llama/Meta-Llama-3-8B"
TOKENS = (8_192, 32_768, 131_072, 1_048_576)
GPUS = (1, 8)
# What each emulated card has: in validation, after the updates, a device has all logits of a text.
ROOM_GB = 10_000

BF16 = ('precision="32-true",  # fp32', 'precision="bf16-true",  # bf16')
# What the script becomes before any technique: that of 08, with Adam.
SHARDED = [
    (
        "    fabric = make_fabric(args)\n",
        """\
    args.batch_size = BATCH_SIZE  # parse() wants one text per device at least
    fabric = make_fabric(args)
""",
    ),
    (
        "import DDPStrategy\n",
        """\
import ModelParallelStrategy
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint
""",
    ),
    (
        "def make_fabric(args):\n",
        """\
def parallelize(model, mesh):
    offload = OffloadPolicy()  # nothing
    for unit in [*models.blocks(model), model]:
        fully_shard(unit, mesh=mesh["data_parallel"], offload_policy=offload)
    return model.to_empty(device=mesh.device_type)


def make_fabric(args):
""",
    ),
    (
        "DDPStrategy(gradient_as_bucket_view=True),  # gradients live in DDP's buffers\n",
        "ModelParallelStrategy(parallelize, args.world_size, 1),\n",
    ),
    (
        """\
    model = models.language_model(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    AttentionInterface.register("exchanged", attention)
    model.set_attn_implementation("exchanged")
    model, optimizer = fabric.setup(model, optimizer)
""",
        """\
    AttentionInterface.register("exchanged", attention)
    with fabric.init_module(empty_init=True):
        model = models.language_model(args, loaders)
    model.set_attn_implementation("exchanged")
    model = fabric.setup_module(model)
    fabric.load_raw(models.weights(args, loaders), model, weights_only=True)
    models.restore_buffers(model, fabric.device)
    # fused: without temporaries as large as the weights, which would hide what a text needs
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset], fused=True)
    optimizer = fabric.setup_optimizers(optimizer)
""",
    ),
]
LOSS, CHECKPOINT, TILES = "fused loss", "checkpointing", "tiled MLPs"
INPUTS, SHARDS = "inputs of blocks on the host", "shards on the host"
# Of each technique, in the order of the columns, what it replaces: (text, its replacement).
TECHNIQUES = {
    LOSS: [
        (
            "def make_fabric(args):\n",
            """\
def loss_of(model, logits_of, labels=None, **tokens):
    if labels is None:  # in validation
        return logits_of(**tokens)
    hidden = model.base_model(**tokens).last_hidden_state.flatten(0, 1)  # (tokens, width)
    head = causal.head(model)
    return causal.liger_fused_linear_cross_entropy(hidden, head.weight, labels.flatten(), head.bias)


def make_fabric(args):
""",
        ),
        # Within the model, since FSDP gathers the head's weights for its forward pass.
        (
            "    offload = ",
            "    model.forward = functools.partial(loss_of, model, model.forward)\n    offload = ",
        ),
        (
            """\
    logits = model(**tokens).logits  # (batch, tokens, vocabulary)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
""",
            "    loss = model(labels=labels, **tokens)\n",
        ),
    ],
    CHECKPOINT: [
        (
            "    offload = ",
            """\
    for block in models.blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    offload = """,
        )
    ],
    TILES: [
        (
            "def parallelize(model, mesh):\n",
            """\
def tiled(mlp, inputs):  # (batch, tokens, width), as in tiled_mlp.py, but for the number of tiles
    tiles = inputs.chunk(8, 1)
    return torch.cat([checkpoint(mlp, tile, use_reentrant=False) for tile in tiles], 1)


def parallelize(model, mesh):
    for mlp in causal.mlps(model):
        mlp.forward = functools.partial(tiled, mlp.forward)
""",
        ),
    ],
    INPUTS: [
        (
            "def parallelize(model, mesh):\n",
            """\
def on_host(forward, *inputs, **options):
    # All that checkpoint() keeps in the forward pass is the block's input.
    with torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available()):
        return checkpoint(forward, *inputs, use_reentrant=False, **options)


def parallelize(model, mesh):
""",
        ),
        ("(checkpoint, block.forward, use_reentrant=False)", "(on_host, block.forward)"),
    ],
    SHARDS: [
        ("OffloadPolicy()  # nothing", "CPUOffloadPolicy(pin_memory=torch.cuda.is_available())"),
        ("to_empty(device=mesh.device_type)", 'to_empty(device="cpu")'),
    ],
}
# The longest texts that fitted on H100s with 80 GB: GPUs, tokens, techniques. Source: tables 1 and
# 2 of Bekman et al. 2025, https://arxiv.org/abs/2506.13996. There the optimizer was on the host,
# and on one GPU the weights, too; here both are.
PUBLISHED = (
    (8, 1_100_000, (LOSS, CHECKPOINT, SHARDS)),
    (8, 1_200_000, (LOSS, CHECKPOINT, TILES, SHARDS)),
    (8, 2_400_000, (LOSS, CHECKPOINT, INPUTS, SHARDS)),
    (8, 3_700_000, tuple(TECHNIQUES)),
    (1, 500_000, tuple(TECHNIQUES)),
)


def steps(gpus):
    """Return tuples of techniques, each with more of them than the one before.

    One GPU has its shard, which is all, on the host from the start: without that, Adam's states
    leave no room for a text.
    """
    own = (SHARDS,) if gpus == 1 else ()
    parts = ((), (LOSS,), (LOSS, CHECKPOINT), (LOSS, CHECKPOINT, TILES, INPUTS))
    return [(*part, *own) for part in parts]


def runs():
    """Return the GPUs, tokens and techniques of all runs; the published ones come last."""
    return [*((g, n, step) for g in GPUS for n in TOKENS for step in steps(g)), *PUBLISHED]


def changed(techniques, *further):
    """Return the script with some techniques, and with further texts replaced."""
    chosen = (pairs for name, pairs in TECHNIQUES.items() if name in techniques)
    return scripts.changed(SCRIPT, [*SHARDED, *itertools.chain(*chosen), *further])


def emulate(gpus, tokens, techniques):
    """Return the record of a run; run it in a process of its own."""
    settings = Wanted(
        "full",
        model=MODEL,
        max_length=tokens,
        batch_size=1,
        devices=gpus,
        card=CARDS["h100"],
        card_gb=ROOM_GB,
    )
    # Rotary positions have no end; the limit in a configuration is that of the pretraining.
    with mock.patch.object(models, "longest", return_value=None):
        return {**predict(changed(techniques, BF16), settings), "techniques": techniques}


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    records = run_jobs([(emulate, *run) for run in runs()])
    stored.write_made_by("long_context", stored.LONG_CONTEXT, records)
