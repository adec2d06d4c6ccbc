"""What the tools must know about a kind of stages: those about images, or those about texts."""

import abc
from pathlib import Path

import torch
import torch.distributed as dist

COUNTS = ("tp", "fp", "tn", "fn")  # right and wrong: true and false, positive and negative


class Accuracy:
    """torchmetrics' accuracy, counted by hand, for scripts that do without Fabric.

    It keeps the same four numbers, so that both measure the same memory. Importing torchmetrics
    would import Lightning's other dependencies, too, and take seconds.
    """

    def __init__(self, num_classes):
        self.num_classes = num_classes
        self._keep([torch.zeros(1, dtype=torch.long) for _ in COUNTS])

    def _keep(self, counts):
        for name, count in zip(COUNTS, counts):
            setattr(self, name, count)

    @property
    def metric_state(self):
        return {name: getattr(self, name) for name in COUNTS}

    def to(self, device):
        self._keep([count.to(device) for count in self.metric_state.values()])
        return self

    def update(self, logits, labels):
        right = (logits.argmax(dim=1) == labels).sum()
        wrong = len(labels) - right
        new = right, wrong, self.num_classes * len(labels) - right - 2 * wrong, wrong
        self._keep([old + n for old, n in zip(self.metric_state.values(), new)])

    def compute(self):
        """Returns the accuracy over all processes, a scalar from 0 to 1."""
        right, wrong = both = torch.cat([self.tp, self.fn])
        if dist.is_initialized():
            dist.all_reduce(both)
        return right / (right + wrong).clamp(min=1)


class Task(abc.ABC):
    """Describes the stages about one kind of input.

    shared/images/task.py, shared/text/task.py and shared/causal/task.py implement it. Here it is
    the task of telling classes apart; a task that is not overrides what depends on that.

    Attributes:
        unit: what a batch consists of, "images" or "texts".
        packages: names of packages that a measurement depends on, besides those of every stage.
        presets: {"tiny" or "full": {"model": name, "data": name}}.
        classes: how many classes the presets' data have, for predictions.
        learned: how it is judged what a model has learned, "accuracy" or "perplexity".
        counts: types of the numbers that new_metric() keeps, for predictions.
        without_bf16: which script to take on a GPU without bf16, as part of a message.
        model_help, data_help: what --model and --data can be.
        saved_help: who can read what --save writes.
    """

    unit: str
    packages: tuple[str, ...]
    presets: dict[str, dict[str, str]]
    classes: int | None
    learned = "accuracy"
    counts = (torch.long,) * 4
    without_bf16: str
    model_help: str
    data_help: str
    saved_help: str

    @abc.abstractmethod
    def knows(self, model: str) -> bool:
        """Tells whether a model's name can be meant for these stages."""

    @abc.abstractmethod
    def suits(self, data: str) -> bool:
        """Tells whether --data can be meant for these stages."""

    def add_options(self, parser, script: bool) -> None:
        """Adds the options that only these stages have.

        Args:
            parser: argparse.ArgumentParser.
            script: whether it is a script's parser; the ladder's has fewer options.
        """

    @abc.abstractmethod
    def choose(self, args) -> None:
        """Fills in what depends on the model: learning rate factors and sizes of the inputs.

        Raises:
            UserError: there is no such model, or an option does not fit it.
        """

    @abc.abstractmethod
    def settings(self, args) -> dict:
        """Returns what a record says of the inputs' size."""

    def passed_on(self, args) -> list[str]:
        """Returns the options of add_options() that a script gets from the ladder."""
        return []

    @abc.abstractmethod
    def prepare(self, args) -> None:
        """Makes what a training needs, data and weights on disk; fills in num_classes and dataset.

        Raises:
            UserError: one of them is missing, unusable, or cannot be downloaded.
        """

    @abc.abstractmethod
    def checkpoint(self, args) -> Path:
        """Returns the file with the weights to start from; writes it if it is not there yet.

        Raises:
            UserError: the weights cannot be downloaded, are damaged, or cannot be written.
        """

    @abc.abstractmethod
    def model(self, args):
        """Returns the model, for args.num_classes classes if it has classes; random weights."""

    def new_metric(self, args, by_fabric):
        """Returns a torchmetrics.Metric of what is learned; without Fabric, what is like one."""
        if not by_fabric:
            return Accuracy(args.num_classes)
        import torchmetrics  # Lightning has imported it already

        return torchmetrics.Accuracy(task="multiclass", num_classes=args.num_classes)

    def count_update(self, metric, loss, logits, labels):
        """Takes what train_step() has returned, and its labels, into a metric."""
        metric.update(logits, labels)

    @abc.abstractmethod
    def outputs(self, model, inputs, labels):
        """Returns what evaluating needs of a model's outputs: (batch, ...), here the logits."""

    def count_outputs(self, metric, outputs, labels):
        """Takes some of the outputs, and their labels, into a metric."""
        metric.update(outputs, labels)

    @abc.abstractmethod
    def save(self, args, state, folder) -> None:
        """Writes a trained model, and what is needed to load it, into a new folder.

        Args:
            args: the options.
            state: the model's state dict, whole, on the host.
            folder: pathlib.Path, empty.

        Raises:
            OSError: it cannot be written.
        """

    def whole(self, model, state):
        """Returns a model's state dict as save() wants it: that of the model it has been built as.

        Args:
            model: the trained one.
            state: its state dict, whole, on the host.
        """
        return state

    @abc.abstractmethod
    def use_of(self, folder) -> str:
        """Returns a command that uses a saved model."""

    @abc.abstractmethod
    def fake_batch(self, args, n: int, update: int, device):
        """Returns n inputs and n labels, uninitialised, for simulations."""
