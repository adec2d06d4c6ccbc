"""Small updates in bf16: the share of weights that they change, and the accuracy reached.

The tiny model is trained in fp32, in bf16, and in bf16 with the two remedies of page 03, at a
learning rate that is small against the weights.
"""

import torch

RATE = 0.4 * 5e-5  # 0.4 of the scripts' rate for a large model; the tiny one gets 12 times that


def train(case):
    """Train the tiny model with a script at a smaller learning rate; return its record.

    The record also has "lr", and "changed", the share of the blocks' weights that differ from their
    initial values.
    """
    # Runs go side by side; with one thread each, their sums are the same every time.
    torch.set_num_threads(1)
    script = case.changed_script.load()
    made = {}
    build = script.build  # replaced, to see the weights before the first update

    def weights():
        # The new head learns in any precision; the question is about pretrained weights.
        blocks = (p for n, p in made["model"].named_parameters() if "encoder.layers" in n)
        return torch.cat([p.detach().flatten() for p in blocks])

    def build_and_watch(*args):
        made["model"], made["optimizer"] = built = build(*args)
        made["before"] = weights().clone()
        return built

    script.build = build_and_watch
    script.LR = {"tiny": RATE}
    record = script.main(["--preset", "tiny", *case.settings.words])
    # Exact comparison: an update that rounds away leaves a weight's bits as they were.
    changed = (weights() != made["before"]).double().mean().item()
    return {**record, "lr": float(made["optimizer"].param_groups[0]["lr"]), "changed": changed}
