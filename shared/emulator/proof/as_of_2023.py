"""Adam and FSDP as they were when figures were published."""

import torch


def use_adam_of_2023():
    """Let Adam allocate one more temporary as large as all weights.

    Until July 2023 it added epsilon to a copy: https://github.com/pytorch/pytorch/pull/104780
    """
    copies = []
    add = torch._foreach_add_
    divide = torch._foreach_addcdiv_

    def new_add(tensors, other, **options):
        if isinstance(other, float) and other == 1e-8:  # epsilon
            # Kept until the division, as the result of the addition was.
            copies.append(torch._foreach_add(tensors, other))
        return add(tensors, other, **options)

    def new_divide(*args, **options):
        divide(*args, **options)
        copies.clear()

    torch._foreach_add_ = new_add
    torch._foreach_addcdiv_ = new_divide


def use_fsdp_of_2023():
    """Let FSDP gather as far ahead as the host does.

    Until July 2023 that was its default: https://github.com/pytorch/pytorch/pull/104900
    """
    # Here, since Adam's rows do not need FSDP, which takes a while to import.
    from torch.distributed.fsdp import FullyShardedDataParallel

    begin = FullyShardedDataParallel.__init__

    def __init__(self, *args, **options):
        # Only the default: a script may still ask for the limit.
        begin(self, *args, **{"limit_all_gathers": False, **options})

    FullyShardedDataParallel.__init__ = __init__
