"""What helps a script first: one technique for what most of its peak is, and where to see it."""

from emulated_gpu import cards
from shared.lab.predict import tables
from shared.lab.records import scripts

LEAST = 0.2  # of the peak: less of it is not worth a technique
ACTIVATIONS = "activations", "recomputed"
KEPT = "parameters", "gradients", "optimizer states"


def advice(r, convolutions=False):
    """Return the smallest card for a script, and what to try first, as lines with options.

    With `convolutions`, cuDNN's workspaces are added, which a prediction leaves out.
    """
    lines, aside = [], tables.set_aside(r["world_size"])
    reserved = tables.needs(r) - aside
    needed = reserved * (1 + tables.CUDNN * convolutions) + aside + tables.OPEN_GB
    with_room = {key: card.gb for key, card in cards.CARDS.items() if card.gb >= needed}
    if with_room:
        key = min(with_room, key=with_room.get)
        lines.append(
            f"The smallest card with {tables.OPEN_GB} GB to spare, of those known: --fits {key}"
        )
    else:
        lines.append("No known card has room: --devices N, if the script shards its weights")
    held, peak = r["train"]["breakdown_gb"], r["train"]["device_peak_gb"]
    helped = [category for category in held if category in (*ACTIVATIONS, *KEPT, "temporaries")]
    most = max(helped, key=held.get, default=None)
    if most and held[most] > LEAST * peak:
        technique, after = first(most, r)
        before = scripts.get(after).parent
        lines.append(f"{held[most] / peak:.0%} of the peak is {most}. First {technique}:")
        lines.append(f"  git diff --no-index {before}.py {after}.py")
    return lines


def first(category, r):
    """Return the first technique for a category: its description, and a script that has it."""
    if category in ACTIVATIONS and r["precision"] in ("fp32", "tf32"):
        return "compute in 16 bits", "02_mixed_precision/train"
    if category in ACTIVATIONS:
        return "checkpoint activations", "09_act_ckpt/one_gpu"
    if category in KEPT and r["world_size"] > 1:
        return "keep weights and states on the host", "10_offload/train"
    if category == "optimizer states":
        return "keep Adam's states in 8 bits", "06_sgd/adam_8bit_bnb"
    if category in KEPT:
        return "shard them over several GPUs", "08_fsdp/train"
    if r["peak_at"]["train"]["phase"] == "step":
        return "update as gradients arrive", "06_sgd/adam_in_backward"
    return "take fewer inputs at once", "05_grad_accum/train"
