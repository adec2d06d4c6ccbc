"""A ledger for simulations that also records what led to each event of its log."""

import torch

from shared.memory.blocks import Block, summit
from shared.memory.ledger import Ledger, parts_of
from shared.predict.gpu import Stream


class RecordedBlock(Block):
    """A storage, and where in the run it was allocated; None where that is not known."""

    __slots__ = ("phase", "module", "stream", "name", "shape", "dtype")

    def __init__(self, nbytes, device, label):
        super().__init__(nbytes, device, label)
        self.phase = self.module = None  # the phase of the run, and the running module
        self.name = None  # of the parameter that it belongs to
        self.shape = self.dtype = None  # of the first tensor in it
        self.stream = 0


class Recorder(Ledger):
    """A ledger that also records modules, streams, workspaces and the operations themselves."""

    def __init__(self, module=lambda: None, hidden=None, seen=None, watch=None):
        """Begin with an empty log, and keep the functions to call.

        module() returns the running module; hidden(operation, arguments, results) the workspaces,
        such as Workspaces.of_gpu(); watch() what to keep of each event. seen(ledger, operation,
        arguments, keyword arguments, results), such as Cost.note(), is told of each operation.
        """
        super().__init__()
        self.module, self.hidden, self.seen, self.watch = module, hidden, seen, watch
        self.phases, self.watched = [], []  # of each event

    def name(self, tensor, name):
        """Record the name of the parameter that the storages of a tensor belong to."""
        if parts := parts_of(tensor):
            for part in parts:
                self.name(part, name)
        elif block := self._live.get(id(tensor.untyped_storage())):
            block.name = name

    def block(self, tensor):
        """Return an identifier of a tensor's storage that no other storage gets."""
        storage = id(tensor.untyped_storage())
        return id(self._live[storage]) if storage in self._live else storage

    def label(self, tensor):
        """Return the category of a tensor's storage, None if it is not in the log."""
        block = self._live.get(id(tensor.untyped_storage()))
        return block and block.label

    def _block(self, nbytes, device, label, like=None):
        block = RecordedBlock(nbytes, device, label)
        block.phase, block.module, block.stream = self.phase(), self.module(), Stream.current
        if like is not None:
            block.shape, block.dtype = tuple(like.shape), like.dtype
        return block

    def log(self, block, change):
        super().log(block, change)
        self.phases.append(self.phase())
        if self.watch:
            self.watched.append(self.watch())

    def _ran(self, func, args, kwargs, out):
        if self.seen:
            self.seen(self, func, args, kwargs, out)
        at_once, kept = self.hidden(func, args, out) if self.hidden else ((), ())
        for sizes in (*at_once, kept):
            blocks = [self._block(n, args[0].device.type, "workspaces") for n in sizes]
            for block in blocks:
                self.log(block, block.nbytes)
            for block in blocks if sizes is not kept else ():
                self.log(block, -block.nbytes)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            # Two thirds of all calls in a simulation: PyTorch asks for the device of a fake tensor.
            # The tensor knows it; asking the modes below would take much longer.
            return args[0].device
        return super().__torch_dispatch__(func, types, args, kwargs)


def peaks(events, device, since=0, until=None, reserved=None):
    """Return a record's phase from a log, given the peak of reserved bytes, and where its peak is.

    Return also what the host held at its own peak, in GB, and the block that led to the peak.
    """
    both = [summit(events, kind, since, until) for kind in (device, "cpu")]
    held, on_host = ({label: n / 1e9 for label, n in its.items()} for _, its, _ in both)
    last = both[0][2]
    phase = {
        "device_peak_gb": both[0][0] / 1e9,
        "device_reserved_gb": reserved and reserved / 1e9,
        "host_peak_gb": both[1][0] / 1e9,
        "breakdown_gb": held,
    }
    return phase, {"phase": last and last.phase, "module": last and last.module}, on_host, last
