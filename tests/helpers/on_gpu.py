"""Bytes that the tiny scripts have in memory on a GPU and not on a CPU: by category, by hand.

Everything else is equal to the byte. PyTorch has other kernels on a GPU, and these keep other
tensors for the backward pass; and tensors that move between host and GPU are on both for a while.

These tables stay by hand, because the bytes follow from the kernels that run before the peak, which
a script does not say. A new side road needs no entry if its peak is where its parent's is.
"""

WIDTH, TOKENS, BLOCKS, HEADS = 96, 65, 4, 4  # of the tiny vision transformer
TEXT_WIDTH, TEXT_BLOCKS, TEXT_HEADS, WORDS = 128, 2, 4, 8192  # of both tiny language models
MERGED = 384  # of the tiny vision-language model: four patches, which become a token
# Differences from the other scripts on images: tokens, images at once, norms before the peak.
TOKENS_OF = {"04_batchsize/patch_dropout": 33, "08_fsdp/sequence_parallel": 17}
IMAGES_OF = {"08_fsdp/no_sync": 1, "08_fsdp/pipeline": 2}
MORE_NORMS = {"08_fsdp/one_unit": 1, "08_fsdp/zero2": 1, "08_fsdp/tensor_parallel": 1}
MORE_NORMS |= {"06_sgd/muon": -1, "08_fsdp/muon": -1}
# Norms are in fp32 in these; and some have a scaler on a GPU only, where 16 bits are fp16.
MIXED = dict.fromkeys(("02_mixed_precision/train", "05_grad_accum/fp16_mixed"), 3 * 4)
MIXED["02_mixed_precision/bf16_mixed"] = 0
# These copy what is saved to the host and back, which a CPU leaves where it is. So only loading is
# compared.
MOVING = ("10_offload/activations", "10_offload/activations_only")
CAUSAL = ("11_llm/causal", "11_llm/causal_chunked", "11_llm/tiled_mlp")
BUCKETS = ("08_fsdp/ddp", "08_fsdp/zero1", "11_llm/context_parallel")
# Rank 0 sends whole weights, in fp32 as in the file, from its GPU: the largest that is sent there.
SENT = dict.fromkeys(("10_offload/train", "10_offload/activations"), 4 * WIDTH * 4 * WIDTH)
SENT["11_llm/train"] = 4 * WORDS * TEXT_WIDTH


def while_loading(name):
    """Return {category: bytes} that a script has more on a GPU at the peak of loading."""
    return {"temporaries": SENT[name]} if name in SENT else {}


def in_training(name, on_cpu):
    """Return [{category: bytes}] that a script has more on a GPU at the peak of its updates.

    `on_cpu` is its record. Where there are several, the version of PyTorch, or a clock of its
    own, decides at which of two moments the peak lies.
    """
    if name == "11_llm/train":
        # The peak is where gradients of embeddings are reduced: after their norm and dropout, whose
        # factor has 16 bits on a CPU, have been freed, or before.
        texts, tokens = max(on_cpu["input_shapes"])
        rows = texts * tokens
        kept = norms(1, rows) + rows * TEXT_WIDTH * (1 - 2)
        return [{}, {"activations": kept}]
    more = (of_texts if name.startswith("11") else of_images)(name, on_cpu)
    if name in BUCKETS:
        # PyTorch's thread that watches NCCL's work still holds the first update's buckets, of all
        # gradients.
        return [{**more, "gradients": round(on_cpu["train"]["breakdown_gb"]["gradients"] * 1e9)}]
    if name == "08_fsdp/pipeline":  # PyTorch 2.11: a received micro-batch less is there at the peak
        message = on_cpu["micro_batch_size"] * TOKENS * WIDTH * 2
        return [more, {**more, "gathered": -message}]
    # Until PyTorch 2.14, the peak is where the shard is no longer copied.
    return [more, {}] if name == "11_llm/lora_sharded" else [more]


def norms(n, rows):
    """Return the bytes that n norms of bf16 keep: mean and deviation per row in fp32, not bf16."""
    return n * rows * 2 * (4 - 2)


def flash(n):
    """Return the bytes that n calls of flash attention keep: the unused state of a generator."""
    return n * (16 + 8)


def efficient(examples, heads, tokens):
    """Return the bytes that memory-efficient attention keeps beside queries, keys and values.

    These are a sum per row in fp32, in rows of a multiple of 32, and the random generator's state.
    """
    return 4 * examples * heads * -(-tokens // 32) * 32 + 16


def attention_with_dropout(examples, heads, tokens):
    """Return the bytes of efficient(), less those of a CPU: probabilities before and after dropout.

    A CPU also keeps the factors of both, since it has no kernel for attention with dropout.
    """
    return efficient(examples, heads, tokens) - 3 * 4 * examples * heads * tokens**2


def dropout(n):
    """Return the bytes that dropout of n values keeps: 1 for each, less a CPU's factor in fp32."""
    return n * (1 - 4)


def of_images(name, on_cpu):
    images = IMAGES_OF.get(name) or on_cpu["micro_batch_size"] or on_cpu["batch_size"]
    rows = images * TOKENS_OF.get(name, TOKENS)
    block = norms(2, rows) + flash(1)
    usual = norms(2 * BLOCKS + MORE_NORMS.get(name, 0), rows) + flash(BLOCKS)
    if name.startswith("01"):  # flash attention is for 16 bits; a CPU has it in fp32, too
        output = 4 * rows * WIDTH  # copied for the next layer
        sums = 4 * rows * HEADS  # a CPU keeps these, too, without further rows
        return {"activations": BLOCKS * (efficient(images, HEADS, TOKENS) - sums + output)}
    if name in MIXED:
        return {"activations": flash(BLOCKS) + MIXED[name]}
    if name == "09_act_ckpt/every_second":
        return {"activations": block, "recomputed": block}
    if name == "09_act_ckpt/keep_attention":  # the peak is in the last block but one
        return {"activations": flash(BLOCKS - 1), "recomputed": norms(2, rows)}
    if name == "09_act_ckpt/selective":
        return {"activations": flash(BLOCKS), "recomputed": norms(2, rows)}
    if name.startswith(("09", "10")):
        return {"recomputed": block}
    if name == "05_grad_accum/hf_accelerate":  # it keeps the batch on the host, too
        return {"activations": usual, "inputs": on_cpu["batch_size"] * (3 * 32 * 32 * 4 + 8)}
    return {"activations": usual}


def of_texts(name, on_cpu):
    texts, tokens = max(on_cpu["input_shapes"])
    attention = attention_with_dropout(texts, TEXT_HEADS, tokens)
    padded = attention + 4 * texts * tokens**2  # with a mask
    if name in CAUSAL:  # dropout of embeddings, and in each block of attention and of the MLP
        in_block = 1 if name == "11_llm/tiled_mlp" else 2  # the MLP's is computed again
        dropped = (1 + in_block * TEXT_BLOCKS) * dropout(texts * tokens * TEXT_WIDTH)
        return {"activations": TEXT_BLOCKS * attention + dropped}
    if name in ("11_llm/grpo", "11_llm/grpo_chunked"):  # no dropout; a CPU keeps sums per row, too
        at_once = texts * 8 if name == "11_llm/grpo" else 8  # completions, without their last token
        sums = 4 * at_once * TEXT_HEADS * (tokens - 1)
        label = "activations" if name == "11_llm/grpo" else "recomputed"
        return {label: TEXT_BLOCKS * (efficient(at_once, TEXT_HEADS, tokens - 1) - sums)}
    if name == "11_llm/context_parallel":  # a quarter of the tokens, or in attention of the heads
        attention = attention_with_dropout(texts, TEXT_HEADS // 4, tokens)
        own = texts * tokens // 4 * TEXT_WIDTH
        result = 4 * own  # of attention: it is kept before the exchange, too
        return {
            "activations": TEXT_BLOCKS * (attention + result) + (1 + 2 * TEXT_BLOCKS) * dropout(own)
        }
    if name == "11_llm/moe":  # no dropout: a CPU keeps sums of attention, too, not the state
        return {"activations": TEXT_BLOCKS * 16}
    if name == "11_llm/frozen":  # the last block alone is trained
        return {"activations": padded}
    if name in ("11_llm/lora", "11_llm/qlora"):  # the peak is in the last block, after its dropout
        dropped = (TEXT_BLOCKS - 1) * dropout(texts * tokens * TEXT_WIDTH)
        return {"activations": TEXT_BLOCKS * padded + dropped}
    if name == "11_llm/lora_sharded":  # the shard of a block, in bf16, is copied from the host
        linear = 12 * TEXT_WIDTH**2 + 13 * TEXT_WIDTH
        adapters = 8 * (4 * 2 + 2 * 5) * TEXT_WIDTH
        return {"gathered": 2 * (linear + adapters) // 4}
    # Adam computes with a copy of all weights at once; on a CPU with two of each, one by one.
    weights = round(on_cpu["train"]["breakdown_gb"]["gradients"] * 1e9)
    if name == "11_llm/images":  # on a CPU, one of the norm before the largest weight is left, too
        return {"temporaries": weights - 4 * (2 * MERGED**2 + MERGED // 4)}
    return {"temporaries": weights - 2 * 4 * WORDS * TEXT_WIDTH}
