"""Small updates in bf16: the share of weights that they change, and the accuracy reached.

`python -m shared records lost_updates` trains the tiny model in fp32, in bf16, and in bf16 with
the two remedies of page 03, at a learning rate that is small against the weights, and stores the
results.
"""

import contextlib
import io

import torch

from shared.lab.predict.jobs import run_jobs
from shared.lab.records import scripts, stored
from shared.run.cli import Parser

SCRIPTS = ("01_baseline/train", "03_bf16/train", "03_bf16/stochastic_rounding", "03_bf16/kahan")
RATE = 0.4 * 5e-5  # 0.4 of the scripts' rate for a large model; the tiny one gets 12 times that
SEEDS = (123, 124, 125)
EPOCHS = 2


def train(name, seed, *options):
    """Train the tiny model with a script at a smaller learning rate; return its record.

    The record also has "lr", and "changed", the share of the blocks' weights that differ from their
    initial values.
    """
    # Runs go side by side; with one thread each, their sums are the same every time.
    torch.set_num_threads(1)
    script = scripts.get(name).load()
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
    # The output of scripts that run side by side would mix.
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        record = script.main(["--preset", "tiny", "--seed", str(seed), *options])
    # Exact comparison: an update that rounds away leaves a weight's bits as they were.
    changed = (weights() != made["before"]).double().mean().item()
    return {**record, "lr": float(made["optimizer"].param_groups[0]["lr"]), "changed": changed}


def trained(seeds, *options):
    """Return the results of train() for every script and seed, as list of records."""
    jobs = [(train, name, seed, *options) for name in SCRIPTS for seed in seeds]
    return run_jobs(jobs, emulated=False)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    records = trained(SEEDS, "--epochs", str(EPOCHS))
    stored.write_made_by("lost_updates", stored.LOST_UPDATES, records)
