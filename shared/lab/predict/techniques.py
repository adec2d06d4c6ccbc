"""The techniques between 11_llm/before.py and 11_llm/train.py, one at a time.

For `python -m shared predict 11 --one-by-one`: from the first script to the last, each step adds a
technique. On one device, where there is nothing to shard, the steps end with checkpointing.

Each step is one of the two scripts with a few lines changed, as the stages 03, 05 and 07 to 10
change them: before.py with more techniques, or train.py with fewer.
"""

import dataclasses

from shared.lab.records import scripts

BEFORE, TRAIN = "11_llm/before", "11_llm/train"
BF16 = "everything in bf16"
FEW = "a few texts at a time"
ONCE = "load without a second copy"
SHARD = "shard over the devices"
CHECKPOINT = "checkpoint every block"
OFFLOAD = "offload shards to the host"
ALONE = (BF16, FEW, ONCE, CHECKPOINT)
TOGETHER = (BF16, FEW, ONCE, SHARD, CHECKPOINT, OFFLOAD)

# Conversion to bf16 would round buffers, such as positions, and the file of weights lacks them.
EXACT_BUFFERS = (
    "    return model, optimizer\n",
    "    models.restore_buffers(model, fabric.device)\n    return model, optimizer\n",
)
# {technique: its replacements in before.py, [(text, replacement)]}.
# Whole texts, so that a change in before.py is an error, and not a technique left out.
ADDED = {
    BF16: [('precision="32-true"', 'precision="bf16-true"'), EXACT_BUFFERS],
    FEW: [
        ("LR = {", "MICRO_BATCH_SIZE = 3  # texts per forward and backward pass\nLR = {"),
        ("BATCH_SIZE, DEVICES)", "BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE)"),
        (
            """\
    logits = model(**tokens).logits  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    fabric.backward(loss)
""",
            """\
    for x, y in data.micro_batches(tokens, labels, MICRO_BATCH_SIZE):
        logits = model(**x).logits  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(y) / len(labels)
        fabric.backward(loss)
        meter.add(loss, logits, y)
""",
        ),
        ("    meter.add(loss, logits, labels)\n", ""),
    ],
    ONCE: [
        (
            "    model = models.classifier(args, loaders)\n",
            """\
    with fabric.init_module(empty_init=True):
        model = models.classifier(args, loaders)
""",
        ),
        ("weights_only=True)", "weights_only=True, mmap=True)"),
        EXACT_BUFFERS,
    ],
    CHECKPOINT: [
        (
            "import torch\n",
            "from functools import partial\nimport torch\n"
            "from torch.utils.checkpoint import checkpoint\n",
        ),
        (
            "    optimizer = torch.optim.Adam(",
            """\
    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = torch.optim.Adam(""",
        ),
    ],
}
# {technique: the replacements in train.py that leave it out}.
LEFT_OUT = {
    CHECKPOINT: [
        (
            """\
    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
""",
            "",
        )
    ],
    OFFLOAD: [
        (", offload_policy=offload)", ")"),
        ('model.to_empty(device="cpu")', "model.to_empty(device=mesh.device_type)"),
    ],
}


def in_order(devices):
    """Return the names of the techniques for a number of devices, in order."""
    return ALONE if devices == 1 else TOGETHER


def script(chosen):
    """Return the Script with the chosen techniques.

    That is before.py for none of them, and a train.py otherwise. Shards are in bf16, in
    micro-batches, and loaded without a second copy.
    """
    if SHARD in chosen:
        missing = [technique for technique in LEFT_OUT if technique not in chosen]
        return scripts.changed(TRAIN, _replacements(LEFT_OUT, missing))
    changed = scripts.changed(BEFORE, _replacements(ADDED, chosen))
    return dataclasses.replace(changed, name=TRAIN) if chosen else changed


def _replacements(changes, names):
    """Return the changes of techniques, each once: two techniques need EXACT_BUFFERS."""
    return list(dict.fromkeys(pair for name in names for pair in changes[name]))
