"""The run of 11_llm/before.py in Hugging Face's Trainer, its memory counted by the same ledger.

    python -m shared.lab.evidence.hf_trainer --preset tiny

The options are named as in transformers.TrainingArguments; without them it does what before.py
does, with the same losses.
"""

import tempfile
from types import SimpleNamespace

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.training_args import OptimizerNames

from shared import cli, errors
from shared.metrics import Meter
from shared.text import data, models
from shared.text.cli import TASK

BATCH_SIZE = 12  # texts per update
LR = {"full": 5e-5, "tiny": 3e-4}  # the tiny preset makes few updates, so they are larger
NAME = "lab/evidence/hf_trainer"
OPTIM = "one of the Trainer's optimizers, such as adafactor (default: adamw_torch)"


class Watched(Trainer):
    """A Trainer on this repository's texts, in their order."""

    def __init__(self, texts, meter, **rest):
        super().__init__(callbacks=[Watching(self, meter)], **rest)
        self.texts = texts
        self.losses = []  # of the update's micro-batches
        self.batches = None  # of the update: its micro-batches
        # The model's loss is the mean over a micro-batch. The Trainer, up to 5.23 at least, takes
        # it for a share of the update's: gradients would be too large, times the micro-batches.
        self.model_accepts_loss_kwargs = False

    # The Trainer's own loader would shuffle the texts in an order of its own.
    def get_train_dataloader(self):
        return self.texts

    def get_batch_samples(self, *args, **kwargs):
        """Keep the micro-batches of the next update for the callback."""
        found = super().get_batch_samples(*args, **kwargs)
        self.batches = found[0]
        return found

    def training_step(self, *args, **kwargs):
        """Keep the loss of a micro-batch for the callback."""
        loss = super().training_step(*args, **kwargs)  # of a micro-batch: its share of the mean
        self.losses.append(loss)
        return loss


class Watching(TrainerCallback):
    """A callback that measures each update of a Trainer with a Meter."""

    def __init__(self, trainer, meter):
        self.trainer, self.meter = trainer, meter
        self.generator = torch.get_rng_state()  # after the model was built

    def on_train_begin(self, *args, **kwargs):
        torch.set_rng_state(self.generator)  # undoes the Trainer's seeding

    def on_step_begin(self, *args, **kwargs):
        """Begin to measure an update."""
        labels = [batch["labels"] for batch in self.trainer.batches]
        self.update = self.meter.memory.update(self.trainer.batches, labels)
        # By hand, as the update begins in one callback and ends in another.
        self.update.__enter__()

    def on_step_end(self, *args, **kwargs):
        """End the measurement of an update, and add its loss to the meter."""
        self.trainer.batches = None
        self.update.__exit__(None, None, None)
        self.meter.steps += 1
        # The sum of the shares is the mean over the batch, as before.py computes it.
        self.meter.losses.add(sum(self.trainer.losses))
        self.meter.losses.end()
        self.trainer.losses = []


def parse(argv):
    """Return the options, and the settings derived from them."""
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
    args.command = cli.command_of(["-m", "shared.lab.evidence.hf_trainer"], argv)
    args.script, args.headline = NAME, f"{NAME}: {__doc__.splitlines()[0]}"
    args.batch_size, steps = BATCH_SIZE, args.gradient_accumulation_steps
    if BATCH_SIZE % steps:
        raise errors.UserError(
            f"--gradient-accumulation-steps {steps} does not divide a batch of {BATCH_SIZE} texts"
        )
    cli.choose(args, TASK)
    args.micro_batch_size = BATCH_SIZE // steps if steps > 1 else None
    # The rest is what cli.parse() would set, since the meter reads it.
    args.devices = args.world_size = args.shares = 1
    args.record, args.save = None, None
    return args


def micro_batches(args):
    """Return the loader of training texts as the Trainer takes them, a micro-batch at a time."""
    size = BATCH_SIZE // args.gradient_accumulation_steps
    loader = data.loaders(SimpleNamespace(**{**vars(args), "batch_size": size})).train
    padded = loader.collate_fn

    def with_labels(examples):
        tokens, labels = padded(examples)
        return {**tokens, "labels": labels}

    # The model computes the loss itself, if it gets the labels beside the tokens.
    loader.collate_fn = with_labels
    return loader


def main(argv=None):
    errors.install()
    args = parse(argv)
    torch.manual_seed(args.seed)
    precision = "bf16-mixed" if args.bf16 else "32-true"
    meter = Meter(args, torch.device(args.accelerator), precision)

    loaders = data.loaders(args)
    with meter.loading(loaders):
        model = models.classifier(args, loaders)
        # The file that before.py loads, so that both begin with the same weights.
        model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    model.to(args.accelerator)
    wanted = TrainingArguments(
        output_dir=tempfile.gettempdir(),  # nothing is written
        per_device_train_batch_size=BATCH_SIZE // args.gradient_accumulation_steps,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        activation_checkpointing=args.activation_checkpointing,
        bf16=args.bf16,
        optim=args.optim,
        learning_rate=LR[args.preset],
        lr_scheduler_type="constant",  # the default falls to 0
        max_grad_norm=0,  # before.py does not clip gradients
        max_steps=loaders.updates,
        seed=args.seed,
        use_cpu=args.accelerator == "cpu",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Watched(micro_batches(args), meter, model=model, args=wanted)
    with meter.memory.train(model):
        trainer.train()
    return meter.test(model, loaders.test)


if __name__ == "__main__":
    main()
