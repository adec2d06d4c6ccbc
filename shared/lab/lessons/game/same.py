"""Is a changed script still the same training?"""

import json
import tempfile
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shared import metrics
from shared.cli import UserError
from shared.lab.lessons.check import ROUNDING
from shared.lab.records.running import side_by_side
from shared.memory.torch_private import wrapped

# After eight updates, the same sums in another order change the loss by 4e-5 of it at most, a
# missing zero_grad() by 3e-3 at least; check.ROUNDING is between the two.
SMALL = ["--preset", "tiny", "--max-steps", "8"]
GRADIENTS = 0.1  # by so much, bf16 and other sums may change a norm of gradients
LEAST_WORK = 0.99  # of the arithmetic of the level's script


def train(script, processes):
    """Train the small model on a CPU; return what must not change.

    That is {"batch_size", "precision", "trained" (the number of weights), "first_loss",
    "last_loss", "optimizer" (its class), "gradients" (their norm, at each of its steps), "curve"
    (the values in the script's list of that name, if it has one)}.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "seen.json")
        if processes > 1:
            side_by_side(processes, train_here, script, file)
        else:
            torch.set_num_threads(1)
            train_here(script, file)
        return json.loads(file.read_text())


def train_here(script, file):
    """Train the small model in this process; the first of several writes what it has seen."""
    seen = {"optimizer": None, "gradients": []}

    def training(original, meter, model, *others):
        seen["trained"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        return original(meter, model, *others)

    def stepping(optimizer, *_):
        seen["optimizer"] = type(optimizer).__name__
        squares = sum(
            p.grad.float().square().sum()
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        )
        whole = (
            squares.full_tensor() if hasattr(squares, "full_tensor") else squares
        )  # of a DTensor
        seen["gradients"].append(float(whole) ** 0.5)

    module = script.load()
    hook = register_optimizer_step_pre_hook(stepping)
    with wrapped(metrics.Meter, "training", training):
        record = module.main(SMALL)
    hook.remove()
    if not isinstance(record, dict) or "last_loss" not in record:
        raise UserError(f"{script.path.name}: main() has to return what meter.test() returns")
    seen |= {name: record[name] for name in "batch_size precision first_loss last_loss".split()}
    seen["curve"] = [float(value) for value in getattr(module, "curve", [])]
    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        return
    file.write_text(json.dumps(seen))


def near(mine, start, share):
    """Return whether two lists have the same numbers, but for a share of them."""
    pairs = zip(mine, start)
    return len(mine) == len(start) and all(abs(a - b) <= share * abs(b) for a, b in pairs)


def other_training(mine, start):
    """Return why the training of the small model is not the level's, None if it is."""
    if mine["batch_size"] != start["batch_size"]:
        batch = f"{mine['batch_size']} images per update instead of {start['batch_size']}"
        return f"{batch}: the batch has to stay"
    if mine["trained"] != start["trained"]:
        weights = f"{mine['trained']:,} instead of {start['trained']:,} weights are trained"
        return f"in the small model, {weights}: the model has to stay, and all of it to learn"
    if mine["precision"] != start["precision"]:
        precision = f"{mine['precision']} instead of {start['precision']}"
        return f"precision {precision}: weights and computation have to keep theirs"
    steps, asked = (len(run["gradients"]) for run in (mine, start))
    if steps != asked:
        return f"{steps} steps of the optimizer instead of {asked}: one for each update"
    losses = [[run["first_loss"], run["last_loss"]] for run in (mine, start)]
    learns = near(*losses, ROUNDING)
    if not learns and mine["optimizer"] != start["optimizer"]:
        return f"{mine['optimizer']} instead of {start['optimizer']}: the optimizer has to stay"
    for update, (a, b) in enumerate(zip(mine["gradients"], start["gradients"]), 1):
        if not near([a], [b], GRADIENTS):
            times = f"{a / b:.2f} times as large as the level's"
            return f"gradients: in update {update}, their norm is {times}"
    if not learns:
        texts = ("{:.4f} to {:.4f}".format(*pair) for pair in losses)
        return "losses {} instead of {}: it does not learn the same".format(*texts)
    if not near(mine["curve"], start["curve"], ROUNDING):
        texts = (", ".join(f"{v:.4f}" for v in run["curve"][:3]) or "none" for run in (mine, start))
        return "curve: its values are {} instead of {}, and so on".format(*texts)
    return None


def other_work(mine, start, level):
    """Return why an update at full size is not the level's, None if it is."""
    if mine["world_size"] > level.gpus:
        return f"{mine['world_size']} GPUs: this level has {level.gpus}"
    for name in ("batch_size", "model", "image_px"):
        if mine[name] != start[name]:
            return f"at full size, {name} is {mine[name]} instead of {start[name]}"
    work, least = (r["cost"]["tflop"] * r["world_size"] for r in (mine, start))
    if work < LEAST_WORK * least:
        return f"an update takes {work:.3g} TFLOP instead of {least:.3g}: something is left out"
    return None
