"""The run of before.py in Hugging Face's Trainer, its memory counted by the same ledger.

The options are named as in transformers.TrainingArguments; without them it does what before.py
does, with the same losses.
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.training_args import OptimizerNames

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared import cli, loading
from shared.metrics import Meter
from shared.text import data, models
from shared.text.cli import TASK

BATCH_SIZE = 12  # texts per update
LR = {"full": 5e-5, "tiny": 3e-4}  # the tiny preset makes few updates, so they are larger
NAME = "11_llm/hf_trainer"
OPTIM = "one of the Trainer's optimizers, such as adafactor (default: adamw_torch)"


class Watched(Trainer):
    """A Trainer on this repository's texts, in their order."""

    def __init__(self, texts, meter, **rest):
        super().__init__(callbacks=[Watching(self, meter)], **rest)
        self.texts, self.losses, self.held = texts, [], None
        # The model's loss is the mean over a micro-batch. The Trainer, up to 5.23 at least, takes
        # it for a share of the update's: gradients would be too large, times the micro-batches.
        self.model_accepts_loss_kwargs = False

    def get_train_dataloader(self):
        return self.texts

    def get_batch_samples(self, *args, **kwargs):
        found = super().get_batch_samples(*args, **kwargs)
        self.held = found[0]
        return found

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)  # of a micro-batch: its share of the mean
        self.losses.append(loss)
        return loss


class Watching(TrainerCallback):
    """A callback that tells the meter where an update begins and ends."""

    def __init__(self, trainer, meter):
        self.trainer, self.meter = trainer, meter
        self.generator = torch.get_rng_state()  # after the model was built

    def on_train_begin(self, *args, **kwargs):
        torch.set_rng_state(self.generator)  # undoes the Trainer's seeding

    def on_step_begin(self, *args, **kwargs):
        labels = [batch["labels"] for batch in self.trainer.held]
        self.update = self.meter.memory.update(self.trainer.held, labels)
        self.update.__enter__()

    def on_step_end(self, *args, **kwargs):
        self.trainer.held = None
        self.update.__exit__(None, None, None)
        self.meter.steps += 1
        self.meter.losses.add(sum(self.trainer.losses))
        self.meter.losses.end()
        self.trainer.losses = []


def main(argv=None):
    parser = cli.Parser(description=__doc__.splitlines()[0])
    cli.add_options(parser, TASK)
    add = parser.add_argument
    add("--bf16", action="store_true", help="mixed precision: bf16 where autocast allows it")
    several = "micro-batches per update (default: 1)"
    accumulation = {"type": cli.positive, "default": 1, "metavar": "N", "help": several}
    add("--gradient-accumulation-steps", **accumulation)
    add("--activation-checkpointing", action="store_true", help="recompute in the backward pass")
    optimizers = [name.value for name in OptimizerNames]
    add("--optim", default="adamw_torch", choices=optimizers, metavar="NAME", help=OPTIM)
    args = parser.parse_args(argv)
    args.command = cli.command_of([f"{NAME}.py"], argv)
    args.script, args.headline = NAME, f"{NAME}: {__doc__.splitlines()[0]}"
    args.batch_size, steps = BATCH_SIZE, args.gradient_accumulation_steps
    if BATCH_SIZE % steps:
        raise cli.UserError(
            f"--gradient-accumulation-steps {steps} does not divide a batch of {BATCH_SIZE} texts"
        )
    cli.choose(args, TASK)
    args.micro_batch_size = BATCH_SIZE // steps if steps > 1 else None
    args.devices = args.world_size = args.shares = 1
    args.record, args.save = None, None
    torch.manual_seed(args.seed)
    precision = "bf16-mixed" if args.bf16 else "32-true"
    meter = Meter(args, torch.device(args.accelerator), precision)

    sets, args.tokenizer = data.prepared(args)
    padding = args.task.collate(args)

    def batch(examples):
        tokens, labels = padding(examples)
        return {**tokens, "labels": labels}

    args.batch_size = BATCH_SIZE // steps  # what a loader yields
    parts = [sets[part] for part in data.PARTS]
    texts = loading.loaders(args, parts, batch)[0]
    test = loading.loaders(args, parts, padding)[2]
    per_epoch = -(-len(texts) // steps)
    args.batch_size, args.updates = BATCH_SIZE, min(args.max_steps or per_epoch, per_epoch)
    with meter.loading():
        model = models.classifier(args)
        model.load_state_dict(torch.load(models.weights(args), weights_only=True))
    model.to(args.accelerator)
    wanted = TrainingArguments(
        output_dir=tempfile.gettempdir(),  # nothing is written
        per_device_train_batch_size=BATCH_SIZE // steps,
        gradient_accumulation_steps=steps,
        activation_checkpointing=args.activation_checkpointing,
        bf16=args.bf16,
        optim=args.optim,
        learning_rate=LR[args.preset],
        lr_scheduler_type="constant",
        max_grad_norm=0,
        max_steps=args.updates,
        seed=args.seed,
        use_cpu=args.accelerator == "cpu",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Watched(texts, meter, model=model, args=wanted)
    with meter.memory.train():
        trainer.train()
    return meter.test(model, test)


if __name__ == "__main__":
    main()
