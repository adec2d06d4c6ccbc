"""Updates of other sizes after those of a script, to find the number that fits on a card at once.

These functions run in a process with an emulated card that has room for everything.
"""

import torch
from torch.utils._pytree import tree_map_only

from shared.lab.predict import tables
from shared.lab.predict.largest import largest
from shared.lab.predict.stage import predicted, with_most
from shared.lab.records.reading import computes_on_host

STEADY = 2  # updates of a size; the second is like any later one


class Tries:
    """Updates of other sizes, by a script's own train_step(), after the updates of its run.

    search(tries) finds a size by calls of tries.update(); `result` is what it returns. `stage` is
    the running stage.Stage, `share` a process's share of its batch. `needed_gb` and `times` are
    {at once: GB that PyTorch reserved} and {at once: fields of a record, such as "time"}.
    """

    def __init__(self, search):
        self._search = search
        self._batch = None
        self.stage = None
        self.share = None
        self.result = None
        self.needed_gb = {}
        self.times = {}

    def follow(self, stage):
        """Take the calls of train_step() in the script of a stage.Stage."""
        self.stage = stage
        self._train_step = stage.script.train_step
        # A global name of the script, by which its main() calls it.
        stage.script.train_step = self._take_step

    def batches(self, stage, loader):
        """Yield one more batch, of one example; the update on it becomes the search."""
        # _take_step() goes by it: from here on, an update is a search.
        self.share = loader.batch_size
        yield tree_map_only(torch.Tensor, lambda t: t[:1], next(iter(loader)))

    def _take_step(self, *arguments):
        """Take the script's calls of train_step(..., inputs, labels, meter)."""
        *first_arguments, inputs, labels, meter = arguments
        if self.share:
            self._example = inputs, labels
            self._search_with(first_arguments, meter)
            return
        # It stays until the search makes another one, as it does in the loop of a script.
        self._batch = inputs, labels
        self._train_step(*arguments)

    def _search_with(self, first_arguments, meter):
        """Run the search, in place of an update, with the arguments of train_step()."""
        self._first_arguments = first_arguments
        self._meter = meter
        self.result = self._search(self)
        self._batch = None  # validation follows, and must not find it in memory

    def update(self, share, at_once):
        """Return the GB reserved for updates on `share` examples, `at_once` in each pass."""
        from emulated_gpu import process  # it exists only where a GPU is emulated

        stage = self.stage
        if stage.micro:
            stage.script.MICRO_BATCH_SIZE = at_once
        # Blocks of another size, idle in the cache, would count as needed.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(STEADY):
            before = process.times()
            # As in a script's loop, the batch before is freed when the next one is there.
            self._batch = tree_map_only(torch.Tensor, lambda t: repeated(t, share), self._example)
            stage.watch.cost.start()  # without the copies that make up the batch
            with stage.watch.at_work():
                self._train_step(*self._first_arguments, *self._batch, self._meter)
        self.needed_gb[at_once] = torch.cuda.max_memory_reserved() / 1e9
        self.times[at_once] = {
            "time": process.passed(before, process.times()),
        }
        return self.needed_gb[at_once]


def repeated(tensor, n):
    """Return a tensor with n copies of a tensor's only example."""
    # Not expand(): its n examples would share the memory of one.
    return tensor.repeat(n, *[1] * (tensor.ndim - 1))


def with_fits(script, options, card_gb):
    """Return a record with "fits": the room on a card, and the largest micro-batch.

    A stage without micro-batches takes its batch at once. The others get a batch of at least two
    micro-batches per process, so that the gradients of the first exist during the forward pass of
    the second.
    """

    def search(tries):
        def needs(n):
            share = max(2 * n, tries.share) if tries.stage.micro else n
            return tries.update(share, n)

        budget = card_gb - tables.set_aside(tries.stage.devices)
        return largest(needs, budget, tries.stage.micro or tries.share)

    tries = Tries(search)
    record, *_ = predicted(script, with_most(script, options), tries)
    needs_gb = tables.needs(record)
    fields = {"card_gb": card_gb, "needs_gb": needs_gb, "fits": needs_gb <= card_gb}
    return {**record, "fits": {**fields, "largest_micro_batch": tries.result}}


def with_way(script, options, card_gb, batch_size):
    """Return a record, with "way": its largest micro-batch with room, for a batch on a card."""

    def search(tries):
        stage = tries.stage
        script_batch = max(stage.script.BATCH_SIZE, stage.devices)
        # The same part of the batch as the process has of the script's own.
        share = max(batch_size * tries.share // script_batch, 1)
        most = min(options.micro_batch_size or share, share)
        budget = card_gb - tables.set_aside(stage.devices)

        def needs(n):
            return tries.update(share, n)

        if torch.cuda.memory_allocated() / 1e9 > budget:
            # What stays between updates is too much; the smallest update shows by how much.
            return share, int(tries.update(1, 1) <= budget)
        if stage.micro:
            return share, largest(needs, budget, most, most)
        return share, share if needs(share) <= budget else 0

    tries = Tries(search)
    record, *_ = predicted(script, options, tries)
    share, at_once = tries.result
    shown = at_once or min(tries.needed_gb)  # where none fits, the least that was tried
    # Loading may need more than updates do, and its cache is emptied before them.
    reserved = max(tries.needed_gb[shown], record["load"]["device_reserved_gb"])
    way = {
        "card_gb": card_gb,
        "needs_gb": reserved + tables.set_aside(record["world_size"]),
        "host_gb": record["train"]["host_peak_gb"],
        "world_size": record["world_size"],
        "batch_size": batch_size,
        "share": share,
        "at_once": at_once,
        **tries.times[shown],
        "on_host": computes_on_host(record),
        "techniques": list(options.techniques or ()),
    }
    return {**record, "way": way}
