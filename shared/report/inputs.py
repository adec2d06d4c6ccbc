"""What the calculator's formulas take: numbers of a model and its kind of block, and choices."""

# What a kind of block has (1) or not (0), or how many of it.
FEATURES = {
    "bias": "matrices have a bias",
    "gated": "the MLP has a third matrix, the gate",
    "rms": "norms are RMSNorm, computed step by step in fp32",
    "rotary": "positions are turned into queries and keys; then each head gets keys of its own",
    "head_norms": "queries and keys have norms of their own",
    "norm_after": "norms come after the sums, not before the layers",
    "dropouts": "dropouts whose masks are kept, of one byte for a value",
    "mask": "attention keeps a mask of padding, tokens × tokens",
    "stored": "attention keeps all its weights, tokens × tokens for each head",
    "by_blocks": "64 tokens look at 8 blocks of 64; the first and last two blocks at all",
    "copy": "in fp32, attention's output is copied into another order",
    "mlp_values": "tensors as wide as the MLP that its activation and second layer keep",
    "steps": "tensors as wide as the MLP that the activation's backward makes at once",
    "dense_head": "dense layers that stand before the classifier",
    "head_bias": "the classifier has a bias",
    "vectors": "vectors as wide as the model that are in no block",
}
# Those of a kind that are not 0. `steps` of a gated MLP are the gradients of the product, of its
# two factors, and of the gate's layer. The GELU of BLOOM and BigBird is several operations.
PLAIN = {"bias": 1, "mlp_values": 2, "steps": 1}
AFTER = {
    **PLAIN,
    "norm_after": 1,
    "dropouts": 2,
    "mask": 1,
    "dense_head": 1,
    "head_bias": 1,
    "vectors": 4,
}
GATED = {"gated": 1, "rms": 1, "rotary": 1, "mask": 1, "mlp_values": 4, "steps": 4, "vectors": 1}
BY_BLOCKS = {"mask": 0, "by_blocks": 1, "mlp_values": 5, "steps": 6, "dense_head": 2}
KINDS = {
    "ViT": {**PLAIN, "copy": 1, "head_bias": 1, "vectors": 4},
    "BERT": AFTER,
    "DistilBERT": {**AFTER, "dropouts": 1, "vectors": 2},
    "Llama": GATED,
    "Qwen3": {**GATED, "head_norms": 1},
    "BLOOM": {**PLAIN, "stored": 1, "steps": 6, "vectors": 4},
    "BigBird": {**AFTER, **BY_BLOCKS},
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
    "weight_bytes": "of a weight, its gradient or a state: 4 in fp32 and mixed, 2 in bf16",
    "value_bytes": "of a result that is kept for the backward pass: 4 in fp32, 2 in mixed and bf16",
    "states": "states per weight: Adam 2, momentum 1, SGD 0",
    "checkpointing": "1 if blocks are recomputed, 0 if not",
    "offload": "1 if shards are on the host, 0 if not",
}

# Bytes of a weight, and of a result that is kept.
PRECISIONS = {"fp32": (4, 4), "mixed": (4, 2), "bf16": (2, 2)}
# What a moment of the backward pass sets.
SET = {
    "done": "blocks that the backward pass has gone through",
    "first": "1 if the first layer of the next block's MLP is at work, 0 if the second",
}
