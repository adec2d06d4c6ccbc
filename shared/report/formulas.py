"""The formulas of the calculator: who holds one GPU's memory, from a model's shape and choices.

They are those of the lesson pages, "Why the memory changes", written once. An expression consists
of numbers, names, + - * / ( ), comparisons and the functions of arithmetic.py, which Python and
JavaScript read alike. Sizes are in bytes. A name is one of
inputs.py, or a part further up.
"""

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
        "per_width",
        "(norms_keep + attention_keeps + dropouts_keep + mlp_keeps) / width",
        "bytes per token and unit of width that a block keeps for the backward pass",
    ),
    ("block_keeps", "rows * width * per_width", "what a block keeps for the backward pass"),
    ("block_input", "rows * width * stream_bytes", "the input of a block"),
    (
        "copies",
        "where(value_bytes < weight_bytes, value_bytes * block, 0)",
        "16-bit copies of a block's weights in mixed precision",
    ),
    (
        "embedding_keeps",
        "norm_after * rows * width * (value_bytes + 1)",
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
    """Returns the expression of what a sum over rows takes for itself on an A100.

    It runs 108 × 16 groups of threads at once, and each adds up 128 columns. The source is that of
    predict.workspaces.staged().
    """
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
# At a moment of the backward pass, which inputs.SET describes.
BACKWARD_PARTS = [
    ("layers_left", "layers - done", "blocks that the backward pass has not gone through"),
    (
        "used",
        "rows * (where(gated, 3, where(first, 2, stored)) * mlp * value_bytes"
        " + (norm_after + stored) * width * stream_bytes + norm_after * width)",
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
        " + max(norm_after, gated, first) * value_bytes))",
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
    ("backward pass, embedding", "vocabulary", {}, [], EMBEDDING),
    ("optimizer step", "1", {}, [], STEP),
]
