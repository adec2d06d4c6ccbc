"""Advice for a script: one technique for the largest part of its peak, and where to see it."""

from emulated_gpu import cards
from shared.lab.predict import tables, times
from shared.lab.records import scripts

LEAST = 0.2  # of the peak: less of it is not worth a technique
ACTIVATIONS = "activations", "recomputed"
KEPT = "parameters", "gradients", "optimizer states"
EVALUATION = (
    "The peak is in evaluation: take fewer inputs at once there, and keep no results on the GPU"
)
CHUNKED = "11_llm/causal_chunked"
# Scripts whose techniques are for a network of blocks that are alike.
BLOCKWISE = "08_fsdp/train", "09_act_ckpt/one_gpu", "10_offload/train"
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
        return [smallest_card(r, convolutions), EVALUATION]
    return [smallest_card(r, convolutions), *(room(r, free_gb) or what_first(r))]


def smallest_card(r, convolutions):
    """Return a line with the smallest card that has room for a script."""
    set_aside = tables.set_aside(r["world_size"])
    # Workspaces are PyTorch's own allocations; what is set aside does not grow with them.
    reserved = tables.needs(r) - set_aside
    if convolutions:
        reserved *= 1 + tables.CUDNN
    needed = reserved + set_aside + tables.OPEN_GB
    with_room = {key: card.gb for key, card in cards.CARDS.items() if card.gb >= needed}
    if not with_room:
        return "No known card has room: --devices N, if the script shards its weights"
    key = min(with_room, key=with_room.get)
    return f"The smallest card with {tables.OPEN_GB} GB to spare, of those known: --card {key}"


def room(r, free_gb):
    """Return a line on the number of inputs with room on the card; none if it is not twice."""
    breakdown = r["train"]["breakdown_gb"]
    grows = sum(breakdown.get(name, 0) for name in WITH_INPUTS)
    if not grows or not r.get("batch_size"):  # of a script without inputs, nothing is known
        return []
    times = 1 + (free_gb - tables.OPEN_GB) / grows
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
    if share <= LEAST or not (chosen := first(largest, r)):
        return []
    technique, after = chosen
    said = f"{share:.0%} of the peak is {largest}. First {technique}"
    if after in BLOCKWISE and r.get("convolutional"):
        return [said]
    return [f"{said}:", f"  git diff --no-index {scripts.get(after).parent}.py {after}.py"]


def first(category, r):
    """Return the first technique for a category that a script does not have yet, or None.

    It is a description, and a script of this repository that has it.
    """
    several = r.get("micro_batch_size") != 1
    fewer = ("take fewer inputs at once", "05_grad_accum/train") if several else None
    if category == "logits":
        return "compute the loss in parts, so that logits never exist as a whole", CHUNKED
    # 16 bits come first, since they also save time; checkpointing takes more.
    if category in ACTIVATIONS and {*r["precision"].split(" and ")} <= {"fp32", "tf32"}:
        return "compute in 16 bits", "02_mixed_precision/train"
    if category in ACTIVATIONS and not r.get("recomputes"):
        return f"checkpoint activations{_price(r['time'])}", "09_act_ckpt/one_gpu"
    if category in ACTIVATIONS:
        return fewer or ("keep activations on the host", "10_offload/activations_only")
    if category in KEPT and r["world_size"] > 1:
        return "keep weights and states on the host", "10_offload/train"
    in_8_bits = r.get("types_gb", {}).get(category, {}).get("uint8", 0)
    if category == "optimizer states" and not in_8_bits:
        return "keep Adam's states in 8 bits", "06_sgd/adam_8bit_bnb"
    if category in KEPT:
        return "shard them over several GPUs", "08_fsdp/train"
    # An optimizer that updates all weights at once needs temporaries as large as these, unless
    # gradients of several passes add up:
    # https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
    at_once = (r.get("micro_batch_size") or 0) * r["world_size"] in (0, r.get("batch_size", 0))
    if r["peak_at"]["train"]["phase"] == "step":
        return ("update as gradients arrive", "06_sgd/adam_in_backward") if at_once else None
    return fewer


def _price(time):
    """Return what checkpointing adds to an update, as measured (09_act_ckpt/README.md)."""
    if not time:
        return ""
    if times.is_paced(time):
        return ", which about doubles an update, as here the host sets the pace"
    return ", for about a third more time"
