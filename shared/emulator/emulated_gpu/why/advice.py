"""Advice for a script: one technique for the largest part of its peak, and how to begin."""

from emulated_gpu import cards
from emulated_gpu.why import fit, times

LEAST = 0.2  # of the peak: less of it is not worth a technique
ACTIVATIONS = "activations", "recomputed"
KEPT = "parameters", "gradients", "optimizer states"
EVALUATION = (
    "The peak is in evaluation: take fewer inputs at once there, and keep no results on the GPU"
)
GRAPH = (
    "The peak is in evaluation, which keeps activations for a backward pass that does not come: "
    "with torch.no_grad(): around it"
)
# How each technique begins, and the lesson on it in the repository of this package.
HOW = {
    "compute the loss in parts, so that logits never exist as a whole": (
        "cross_entropy over some tokens at a time, or a fused loss such as Liger's",
        "11_llm/causal_chunked.py",
    ),
    "compute in 16 bits": (
        'with torch.autocast("cuda", dtype=torch.bfloat16): around the forward pass',
        "03_bf16/train.py",
    ),
    "checkpoint activations": (
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for each block",
        "09_act_ckpt/one_gpu.py",
    ),
    "take fewer inputs at once": (
        "several backward passes for one optimizer.step(), each of a part of the batch",
        "05_grad_accum/train.py",
    ),
    "keep activations on the host": (
        "with torch.autograd.graph.save_on_cpu(pin_memory=True): around the forward pass",
        "10_offload/activations_only.py",
    ),
    "keep weights and states on the host": (
        "fully_shard(block, offload_policy=CPUOffloadPolicy())",
        "10_offload/train.py",
    ),
    "keep Adam's states in 8 bits": (
        "bitsandbytes.optim.AdamW8bit in place of torch.optim.AdamW",
        "06_sgd/adam_8bit_bnb.py",
    ),
    "shard them over several GPUs": ("fully_shard(block) for each block", "08_fsdp/train.py"),
    "update as gradients arrive": (
        "parameter.register_post_accumulate_grad_hook() that steps and frees",
        "06_sgd/adam_in_backward.py",
    ),
}
BLOCKWISE = "shard them over several GPUs", "checkpoint activations"
WITH_INPUTS = (*ACTIVATIONS, "inputs", "temporaries", "workspaces")  # they grow with the inputs


def advice(r, convolutions=False, free_gb=0):
    """Return the smallest card for a script, and a technique to try first, as lines with options.

    Args:
        r: the script's record.
        convolutions: leave room for workspaces of cuDNN, which a prediction may have too small.
        free_gb: GB of the card that the script leaves free. With room for twice the inputs,
            nothing has to be saved.
    """
    if r["peak_at"]["train"]["phase"] == "evaluation":  # which the inputs of training do not change
        kept = sum(r["train"]["breakdown_gb"].get(name, 0) for name in ACTIVATIONS)
        has_graph = kept > LEAST * r["train"]["device_peak_gb"]
        return [smallest_card(r, convolutions), GRAPH if has_graph else EVALUATION]
    if fit.is_before_training(r):  # on which no technique of training has an effect
        return [smallest_card(r, convolutions)]
    return [smallest_card(r, convolutions), *(room(r, free_gb) or what_first(r))]


def smallest_card(r, convolutions):
    """Return a line with the smallest card that has room for a script."""
    needed = fit.needs(r) + fit.OPEN_GB
    if convolutions:
        # Workspaces are PyTorch's own allocations; what is set aside does not grow with them.
        needed += fit.CUDNN * (fit.needs(r) - cards.set_aside(r["world_size"]))
    with_room = {key: card.gb for key, card in cards.CARDS.items() if card.gb >= needed}
    if not with_room:
        return "No known card has room: --devices N, if the script shards its weights"
    key = min(with_room, key=with_room.get)
    return f"The smallest card with {fit.OPEN_GB} GB to spare, of those known: --card {key}"


def room(r, free_gb):
    """Return a line on the number of inputs with room on the card; none if it is not twice."""
    breakdown = r["train"]["breakdown_gb"]
    grows = sum(breakdown.get(name, 0) for name in WITH_INPUTS)
    if not grows or not r.get("batch_size"):  # of a script without inputs, nothing is known
        return []
    times = 1 + (free_gb - fit.OPEN_GB) / grows
    if times < 2:
        return []
    many = f"about {int(times)} times the {r['unit']} at once"
    return [f"Nothing has to be saved: there is room for {many}"]


def what_first(r):
    """Return lines with a technique for the largest part of the peak, none if there is none."""
    breakdown = r["train"]["breakdown_gb"]
    # A technique reduces each of these; nothing that a script does reduces workspaces or rounding.
    parts = {name: breakdown.get(name, 0) for name in (*ACTIVATIONS, *KEPT, "temporaries")}
    parts["logits"] = 0
    for name, of_types in r.get("logits_gb", {}).items():
        gb = sum(gb for kind, gb in of_types.items() if kind)
        parts["logits"] += gb
        parts[name] = parts.get(name, 0) - gb
    largest = max(parts, key=parts.get)
    share = parts[largest] / r["train"]["device_peak_gb"]
    if share <= LEAST or not (technique := first(largest, r)):
        return []
    how, lesson = HOW[technique]
    said = f"{share:.0%} of the peak is {largest}. First {technique}{_price(technique, r)}"
    if technique in BLOCKWISE and r.get("convolutional"):  # it has no blocks that are alike
        return [said]
    return [f"{said}:", f"  {how} (lesson {lesson})"]


def first(category, r):
    """Return the first technique of HOW for a category that a script does not have yet, or None."""
    several = r.get("micro_batch_size") != 1
    fewer = "take fewer inputs at once" if several else None
    if category == "logits":
        return "compute the loss in parts, so that logits never exist as a whole"
    # 16 bits come first, since they also save time; checkpointing takes more.
    if category in ACTIVATIONS and {*r["precision"].split(" and ")} <= {"fp32", "tf32"}:
        return "compute in 16 bits"
    if category in ACTIVATIONS and not r.get("recomputes"):
        return "checkpoint activations"
    if category in ACTIVATIONS:
        return fewer or "keep activations on the host"
    if category in KEPT and r["world_size"] > 1:
        return "keep weights and states on the host"
    in_8_bits = r.get("types_gb", {}).get(category, {}).get("uint8", 0)
    if category == "optimizer states" and not in_8_bits:
        return "keep Adam's states in 8 bits"
    if category in KEPT:
        return "shard them over several GPUs"
    # An optimizer that updates all weights at once needs temporaries as large as these, unless
    # gradients of several passes add up:
    # https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
    at_once = (r.get("micro_batch_size") or 0) * r["world_size"] in (0, r.get("batch_size", 0))
    if r["peak_at"]["train"]["phase"] == "step":
        return "update as gradients arrive" if at_once else None
    return fewer


def _price(technique, r):
    """Return what checkpointing adds to an update, as measured (09_act_ckpt/README.md)."""
    if technique != "checkpoint activations" or not r["time"]:
        return ""
    if times.is_paced(r["time"]):
        return ", which about doubles an update, as here the host sets the pace"
    return ", for about a third more time"
