"""The formulas of the calculator: who holds the memory of one GPU, from a model's shape and choices.

They are those of the lesson pages, "Why the memory changes", written once. An expression consists
of numbers, names, + - * / ( ), comparisons and the functions of arithmetic.py, which Python and
JavaScript read alike. Sizes are in bytes. A name is an input, or a part further up.
"""

# What a kind of block has (1) or not (0), or how many of it.
FEATURES = {
    "bias": "matrices have a bias",
    "gated": "the MLP has a third matrix, the gate",
    "rms": "norms are RMSNorm, computed step by step in fp32",
    "rotary": "positions are turned into queries and keys; then each head gets keys of its own",
    "head_norms": "queries and keys have norms of their own",
    "after": "norms come after the sums, not before the layers",
    "dropouts": "dropouts whose masks are kept, of one byte for a value",
    "mask": "attention keeps a mask of padding, tokens × tokens",
    "stored": "attention keeps all its weights, tokens × tokens for each head",
    "by_blocks": "attention looks at 8 blocks of 64 tokens",
    "copy": "in fp32, attention's output is copied into another order",
    "mlp_values": "tensors as wide as the MLP that its activation and second layer keep",
    "steps": "tensors as wide as the MLP that its activation makes at once in the simulation's backward"
    " pass",
    "dense_head": "dense layers that stand before the classifier",
    "head_bias": "the classifier has a bias",
    "vectors": "vectors as wide as the model that are in no block",
}
# Those of a kind that are not 0. Of `steps`, 7 for a gated MLP are those that the predictor's
# simulated GPU makes for SiLU, its activation, in several operations.
_OLD = {"bias": 1, "mlp_values": 2, "steps": 1}
_BERT = {
    **_OLD,
    "after": 1,
    "dropouts": 2,
    "mask": 1,
    "dense_head": 1,
    "head_bias": 1,
    "vectors": 4,
}
_LLAMA = {"gated": 1, "rms": 1, "rotary": 1, "mask": 1, "mlp_values": 4, "steps": 7, "vectors": 1}
_SPARSE = {"mask": 0, "by_blocks": 1, "mlp_values": 5, "steps": 6, "dense_head": 2}
KINDS = {
    "ViT": {**_OLD, "copy": 1, "head_bias": 1, "vectors": 4},
    "BERT": _BERT,
    "DistilBERT": {**_BERT, "dropouts": 1, "vectors": 2},
    "Llama": _LLAMA,
    "Qwen3": {**_LLAMA, "head_norms": 1},
    "BLOOM": {**_OLD, "stored": 1, "steps": 6, "vectors": 4},
    "BigBird": {**_BERT, **_SPARSE},
}
KINDS = {kind: {**dict.fromkeys(FEATURES, 0), **its} for kind, its in KINDS.items()}
INPUTS = {
    "layers": "blocks of the model",
    "width": "values of a token between the blocks",
    "heads": "heads of attention",
    "kv_heads": "heads that have keys and values of their own",
    "head_width": "values of a token in one head",
    "mlp": "width of the MLP inside a block",
    "vocabulary": "tokens that the model knows; 0 for images",
    "positions": "positions that have a vector of their own",
    "classes": "classes to choose from",
    "tokens": "tokens of an image or text",
    "pixels": "edge of an image; 0 for texts",
    "patch": "edge of a patch; 0 for texts",
    "batch": "images or texts per update, on all GPUs",
    "micro": "images or texts per forward pass on one GPU",
    "gpus": "GPUs",
    "weight_bytes": "of a weight, its gradient, or one of its states: 4 in fp32 and mixed, 2 in bf16",
    "value_bytes": "of a result that is kept for the backward pass: 4 in fp32, 2 in mixed and bf16",
    "states": "states per weight: Adam 2, momentum 1, SGD 0",
    "checkpointing": "1 if blocks are recomputed, 0 if not",
    "offload": "1 if shards are on the host, 0 if not",
}

# Bytes of a weight, and of a result that is kept.
PRECISIONS = {"fp32": (4, 4), "mixed": (4, 2), "bf16": (2, 2)}

# (name, expression, what it is). A later one may use the names of earlier ones.
PARTS = [
    ("share", "batch / gpus", "images or texts of a GPU per update"),
    ("at_once", "min(micro, share)", "of them in one forward pass"),
    ("micro_batches", "ceil(share / at_once)", "forward passes of a GPU per update"),
    ("rows", "at_once * tokens", "tokens in one forward pass"),
    ("sharded", "where(gpus > 1, 1, offload)", "1 if weights are in shards (FSDP), 0 if not"),
    ("q_width", "heads * head_width", "queries of a token"),
    ("kv_width", "kv_heads * head_width", "keys of a token, and as many values"),
    (
        "attention_weights",
        "width * (2 * q_width + 2 * kv_width) + bias * (q_width + 2 * kv_width + width)"
        " + head_norms * 2 * head_width",
        "queries, keys, values and output of a block",
    ),
    ("mlp_weights", "(2 + gated) * width * mlp + bias * (mlp + width)", "of a block"),
    ("block", "attention_weights + mlp_weights + 2 * (2 - rms) * width", "weights of a block"),
    (
        "outside",
        "(vocabulary + positions + 3 * patch * patch + vectors) * width"
        " + dense_head * (width + 1) * width + classes * (width + head_bias)",
        "weights in no block: embeddings, the last norm, the classifier",
    ),
    ("N", "layers * block + outside", "weights of the model"),
    (
        "stream_bytes",
        "max(weight_bytes, value_bytes)",
        "of a value of the sum that runs through all blocks",
    ),
    (
        "norms_keep",
        "2 * width * where(rms, 4 + stream_bytes + value_bytes, stream_bytes + value_bytes)",
        "bytes per token: inputs and outputs of two norms; RMSNorm's inputs in fp32, and what it"
        " multiplies by its weights",
    ),
    (
        "attention_keeps",
        "value_bytes * where(rotary, 4 * q_width, 2 * q_width + 2 * kv_width)"
        " + head_norms * (q_width + kv_width) * (4 + value_bytes)"
        " + copy * where(value_bytes == 4, 4 * width, 0) + mask * tokens * value_bytes"
        " + stored * heads * tokens * where(value_bytes == 4, 4, 6)"
        " + by_blocks * value_bytes * (5 * width + 24 * 64 * heads * (1 - 256 / tokens))",
        "bytes per token: queries, keys, values, output; norms of heads; a copy; the mask; where"
        " they are stored, attention weights in fp32 and once more in 16 bit; by blocks, the 8"
        " blocks of weights and 16 of keys, values and products",
    ),
    ("dropouts_keep", "dropouts * width", "bytes per token: masks of one byte"),
    (
        "mlp_keeps",
        "mlp_values * mlp * value_bytes",
        "bytes per token: input and output of the activation; with a gate also what it multiplies,"
        " and the product; in BigBird also steps of the activation",
    ),
    (
        "block_keeps",
        "rows * (norms_keep + attention_keeps + dropouts_keep + mlp_keeps)",
        "what a block keeps for the backward pass",
    ),
    ("block_input", "rows * width * stream_bytes", "the input of a block"),
    (
        "copies",
        "where(value_bytes < weight_bytes, value_bytes * block, 0)",
        "16-bit copies of a block's weights in mixed precision",
    ),
    (
        "embedding_keeps",
        "after * rows * width * (value_bytes + 1)",
        "what a norm and a dropout after the embedding keep",
    ),
    ("per_gpu", "where(sharded, 1 / gpus, 1)", "the part of all weights that a GPU has"),
    ("on_device", "1 - offload", "1 if these are on the GPU, 0 if on the host"),
    ("shard", "per_gpu * on_device * weight_bytes", "bytes on this GPU for each weight"),
    (
        "batch_bytes",
        "where(pixels > 0, 3 * pixels * pixels * (4 * share + where(value_bytes < 4,"
        " value_bytes * at_once, 0)), 16 * tokens * share)",
        "images in fp32, and those at work once more in 16 bit; or token numbers and their mask",
    ),
]


def column_sum(columns):
    """Returns the expression of what a sum over rows takes for itself on an A100."""
    steps = f"min(max(ceil(221184 / {columns}), ceil(rows / 1024)), ceil(rows / 64))"
    return f"where(rows > 1020, 512 * {columns} * {steps}, 0)"


# While attention by blocks is at work, its weights are put into a matrix of all pairs of tokens.
ALL_PAIRS_PARTS = [
    (
        "at_work",
        "rows * value_bytes * (12 * width + heads * (tokens + 58 * 64 * (1 - 256 / tokens)))",
        "what attention by blocks holds at once: a matrix of all pairs of tokens, and for each"
        " block of 64 queries 16 of weights and 42 of keys, values and products",
    ),
]
# At a moment of the backward pass: `done` blocks are behind it; of the next one, the second layer
# of the MLP is at work, or the first one if `first` is 1.
BACKWARD_PARTS = [
    ("layers_left", "layers - done", "blocks that the backward pass has not gone through"),
    (
        "used",
        "rows * (where(gated, 3, where(first, 2, stored)) * mlp * value_bytes"
        " + (after + stored) * width * stream_bytes + after * width)",
        "what the block at work needs no more",
    ),
    ("newest", "(1 + where(gated, 1, first)) * width * mlp * weight_bytes", "its first gradients"),
]
STATES = ("states * N * shard", "the optimizer's states of the weights that this GPU has")
WEIGHTS = ("N * shard", "the weights that this GPU has")
BATCH = ("batch_bytes", "the batch")
BACKWARD = {
    "parameters": WEIGHTS,
    "gradients": (
        "where(micro_batches > 1, N, done * block) * shard + (1 - sharded) * newest",
        "of blocks that are done, or of all blocks from the second micro-batch on; and the newest",
    ),
    "optimizer states": STATES,
    "inputs": BATCH,
    "activations": (
        "layers_left * where(checkpointing, block_input, block_keeps)"
        " - where(checkpointing, 0, used) + layers_left * copies + embedding_keeps",
        "what the blocks keep; with checkpointing, their inputs",
    ),
    "recomputed": (
        "checkpointing * (block_keeps - block_input - used)",
        "what the block at work keeps, computed again",
    ),
    "gathered": (
        "sharded * (weight_bytes * (outside + block * (1 + where(done < layers - 1, 1, 0)"
        " + where(gpus > 1, min(done, 1), 0))) + newest)",
        "weights in no block, the block at work, the next one, gradients of the last one on their"
        " way to the other GPUs, and the newest ones",
    ),
    "temporaries": (
        "rows * (steps * mlp * value_bytes + width * (stream_bytes"
        " + max(after, gated, first) * value_bytes))",
        "gradients of results: of the MLP's activation, and of the sum through all blocks",
    ),
    "workspaces": (
        f"where(bias * (1 - stored), max(8519680, where(first, {column_sum('mlp')},"
        f" {column_sum('width')})), 0)",
        "what cuBLAS takes for a product, or a sum over rows for the gradient of a bias, on an"
        " A100",
    ),
}
FORWARD = {
    "parameters": WEIGHTS,
    "gradients": ("where(micro_batches > 1, N, 0) * shard", "of earlier micro-batches"),
    "optimizer states": STATES,
    "inputs": BATCH,
    "gathered": (
        "sharded * weight_bytes * (outside * where(gpus > 1, 2, 1) + block)",
        "weights in no block, the buffer in which they arrive, and the first block",
    ),
}
EMBEDDING = {
    "parameters": WEIGHTS,
    "gradients": (
        "where(micro_batches > 1, N, layers * block) * shard"
        " + (1 - sharded) * vocabulary * width * weight_bytes",
        "of all blocks, or of all weights from the second micro-batch on; and the newest",
    ),
    "optimizer states": STATES,
    "inputs": BATCH,
    "gathered": (
        "sharded * weight_bytes * (outside + vocabulary * width + block)",
        "weights in no block, the embedding's gradient, and gradients of the first block on their"
        " way",
    ),
    "temporaries": ("rows * width * stream_bytes", "the gradient of the embedding's output"),
    "workspaces": (
        "where(vocabulary * (rows > 3072), 4 * width * (rows / 10 + min(rows, vocabulary)), 0)",
        "sums of the rows of equal tokens",
    ),
}
ALL_PAIRS = {
    "parameters": WEIGHTS,
    "gradients": ("where(micro_batches > 1, N, 0) * shard", "of earlier micro-batches"),
    "optimizer states": STATES,
    "inputs": BATCH,
    "activations": (
        "where(checkpointing, layers * block_input, (layers - 1) * block_keeps + at_work)"
        " + embedding_keeps",
        "what the blocks keep, and the last one at work; with checkpointing, their inputs",
    ),
    "recomputed": ("checkpointing * at_work", "the last block at work"),
    "gathered": (
        "sharded * weight_bytes * (outside + 2 * block)",
        "weights in no block, the block at work and the next one",
    ),
    "temporaries": ("rows * width * stream_bytes", "a gradient, or a result of the block"),
}
STEP = {
    "parameters": WEIGHTS,
    "gradients": ("N * shard", "of all weights that this GPU has"),
    "optimizer states": STATES,
    "inputs": BATCH,
    "temporaries": (
        "where(states == 2, N * shard, 0)",
        "Adam updates all weights in grouped operations, which need a copy of them",
    ),
}
# (name, in which kinds, what is set first, further parts, what is held). The page shows the largest
# of each name.
MOMENTS = [
    ("forward pass begins", "1", {}, [], FORWARD),
    ("attention of the last block", "by_blocks", {}, ALL_PAIRS_PARTS, ALL_PAIRS),
    *[
        (name, "1", {"done": done, "first": first}, BACKWARD_PARTS, BACKWARD)
        for name, dones in (
            ("backward pass begins", ("0", "min(1, layers - 1)")),
            ("backward pass ends", ("max(layers - 2, 0)", "layers - 1")),
        )
        for done in dones
        for first in ("0", "where(gated + stored, 0, 1)")
    ],
    ("backward pass, embedding", "1", {}, [], EMBEDDING),
    ("optimizer step", "1", {}, [], STEP),
]
