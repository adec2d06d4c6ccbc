"""What helps a script first: one technique for what most of its peak is, and where to see it."""

from shared.emulator import cards
from shared.predict import tables

LEAST = 0.2  # of the peak: less of it is not worth a technique
ACTIVATIONS = "activations", "recomputed"
KEPT = "parameters", "gradients", "optimizer states"


def advice(r):
    """Return the smallest card for a script, and what to try first, as lines with options."""
    needed, lines = tables.needs(r), []
    with_room = {key: card.gb for key, card in cards.CARDS.items() if card.gb >= needed}
    if with_room:
        key = min(with_room, key=with_room.get)
        lines.append(f"The smallest card with room, of those known: --fits {key}")
    else:
        lines.append("No known card has room: --devices N, if the script shards its weights")
    held, peak = r["train"]["breakdown_gb"], r["train"]["device_peak_gb"]
    helped = [category for category in held if category in (*ACTIVATIONS, *KEPT, "temporaries")]
    most = max(helped, key=held.get, default=None)
    if most and held[most] > LEAST * peak:
        technique, before, after = first(most, r)
        lines.append(f"{held[most] / peak:.0%} of the peak is {most}. First {technique}:")
        lines.append(f"  git diff --no-index {before}.py {after}.py")
    return lines


def first(category, r):
    """Return the first technique for a category: its description, a script without it, and with."""
    if category in ACTIVATIONS and r["precision"] in ("fp32", "tf32"):
        return "compute in bf16", "01_baseline/train", "02_mixed_precision/bf16_mixed"
    if category in ACTIVATIONS:
        return "checkpoint activations", "08_fsdp/train", "09_act_ckpt/one_gpu"
    if category in KEPT and r["world_size"] > 1:
        return "keep weights and states on the host", "09_act_ckpt/train", "10_offload/train"
    if category == "optimizer states":
        return "keep Adam's states in 8 bits", "05_grad_accum/train", "06_sgd/adam_8bit_bnb"
    if category in KEPT:
        return "shard them over several GPUs", "07_init_module/train", "08_fsdp/train"
    if r["peak_at"]["train"]["phase"] == "step":
        return "update as gradients arrive", "06_sgd/train", "06_sgd/adam_in_backward"
    return "take fewer inputs at once", "04_batchsize/train", "05_grad_accum/train"
