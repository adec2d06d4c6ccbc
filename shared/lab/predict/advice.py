"""Advice for a script: one technique for the largest part of its peak, and where to see it."""

from emulated_gpu import cards
from shared.lab.predict import tables, times
from shared.lab.records import scripts

LEAST = 0.2  # of the peak: less of it is not worth a technique
ACTIVATIONS = "activations", "recomputed"
KEPT = "parameters", "gradients", "optimizer states"
WITH_INPUTS = (*ACTIVATIONS, "inputs", "temporaries", "workspaces")  # they grow with the inputs


def advice(r, convolutions=False, free_gb=0):
    """Return the smallest card for a script, and a technique to try first, as lines with options.

    Args:
        r: the script's record.
        convolutions: leave room for workspaces of cuDNN, which a prediction may have too small.
        free_gb: GB of the card that the script leaves free. With room for twice the inputs,
            nothing has to be saved.
    """
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
    """Return lines with a technique for the largest category of the peak, none if it is small."""
    breakdown = r["train"]["breakdown_gb"]
    peak = r["train"]["device_peak_gb"]
    # A technique reduces each of these; nothing that a script does reduces workspaces or rounding.
    reducible = [name for name in breakdown if name in (*ACTIVATIONS, *KEPT, "temporaries")]
    largest = max(reducible, key=breakdown.get, default=None)
    if not largest or breakdown[largest] <= LEAST * peak:
        return []
    technique, after = first(largest, r)
    before = scripts.get(after).parent
    return [
        f"{breakdown[largest] / peak:.0%} of the peak is {largest}. First {technique}:",
        f"  git diff --no-index {before}.py {after}.py",
    ]


def first(category, r):
    """Return the first technique for a category: its description, and a script that has it."""
    # 16 bits come first, since they also save time; checkpointing takes more.
    if category in ACTIVATIONS and {*r["precision"].split(" and ")} <= {"fp32", "tf32"}:
        return "compute in 16 bits", "02_mixed_precision/train"
    if category in ACTIVATIONS:
        return f"checkpoint activations{_price(r['time'])}", "09_act_ckpt/one_gpu"
    if category in KEPT and r["world_size"] > 1:
        return "keep weights and states on the host", "10_offload/train"
    if category == "optimizer states":
        return "keep Adam's states in 8 bits", "06_sgd/adam_8bit_bnb"
    if category in KEPT:
        return "shard them over several GPUs", "08_fsdp/train"
    # An optimizer that updates all weights at once needs temporaries as large as these:
    # https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
    if r["peak_at"]["train"]["phase"] == "step":
        return "update as gradients arrive", "06_sgd/adam_in_backward"
    # Logits, their gradient and copies of them, of a word list that is longer than texts are wide.
    if r.get("unit") == "texts":
        return "compute the loss in parts", "11_llm/causal_chunked"
    return "take fewer inputs at once", "05_grad_accum/train"


def _price(time):
    """Return what checkpointing adds to an update, as measured (09_act_ckpt/README.md)."""
    if not time:
        return ""
    if times.is_paced(time):
        return ", which about doubles an update, as here the host sets the pace"
    return ", for about a third more time"
