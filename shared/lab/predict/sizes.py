"""Updates of other sizes after those of a script, to find the number that fits on a card at once.

These functions run in a process with an emulated card that has room for everything.
"""

import torch
from torch.utils._pytree import tree_map_only

from emulated_gpu import cards
from emulated_gpu.why.fit import needs
from shared.lab.predict.largest import largest
from shared.lab.predict.stage import predicted, with_most

STEADY = 2  # updates of a size; the second is like any later one


class Tries:
    """Updates of other sizes, by a script's own train_step(), after the updates of its run.

    search(tries) finds a size by calls of tries.update(); `result` is what it returns. `stage` is
    the running stage.Stage, `share` a process's share of its batch.
    """

    def __init__(self, search):
        self._search = search
        self._batch = None
        self.stage = None
        self.share = None
        self.result = None

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
        stage = self.stage
        if stage.micro:
            stage.script.MICRO_BATCH_SIZE = at_once
        # Blocks of another size, idle in the cache, would count as needed.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(STEADY):
            # As in a script's loop, the batch before is freed when the next one is there.
            self._batch = tree_map_only(torch.Tensor, lambda t: repeated(t, share), self._example)
            with stage.watch.at_work():
                self._train_step(*self._first_arguments, *self._batch, self._meter)
        return torch.cuda.max_memory_reserved() / 1e9


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

        budget = card_gb - cards.set_aside(tries.stage.devices)
        return largest(needs, budget, tries.stage.micro or tries.share)

    tries = Tries(search)
    record, *_ = predicted(script, with_most(script, options), tries)
    needs_gb = needs(record)
    fields = {"card_gb": card_gb, "needs_gb": needs_gb, "fits": needs_gb <= card_gb}
    return {**record, "fits": {**fields, "largest_micro_batch": tries.result}}
