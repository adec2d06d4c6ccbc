"""The updates of a script, found by hooks: a script may write its training loop in any way."""

import collections
import weakref

import torch
from torch.nn.parameter import is_lazy

from emulated_gpu import process
from emulated_gpu.accounting.blocks import tensors
from emulated_gpu.process import address, on_gpu
from emulated_gpu.why.watch import IS_TOLD

LEAST_GROWTH = 100_000  # bytes with each update
MANY = 3  # batches of evaluation that have left as much prove that the next ones do
STEADY = 1.5  # the largest growth of an update is at most so many times the smallest


def shape_of(batch):
    """Return the shape of a batch's inputs and whether they are floating-point numbers, or None.

    The batch itself must not be kept, which would take memory.
    """
    found = [*tensors(batch)]
    # Of a dictionary, labels may come first.
    first = next((t for t in found if t.ndim > 1), found[0] if found else None)
    if first is None or not first.ndim:
        return None
    # Detection takes a list of images, which may differ in size.
    images = next((x for x in batch if isinstance(x, (list, tuple))), ())
    is_list = len(images) > 1 and all(getattr(x, "ndim", 0) == 3 for x in images)
    if is_list:
        return (len(images), *first.shape), first.is_floating_point()
    return (len(first), *first.shape[1:]), first.is_floating_point()


class Batches:
    """Shapes and sizes of the batches that a script trains with.

    Attributes:
        shape: (shape, whether floating-point) of the first batch, None before it.
        sizes: of each batch since the last update, more than one if gradients accumulate.
        last: the sizes in the last update that was watched.
        shapes: of all batches.
        of_loader: whether a loader has made any of them.
    """

    def __init__(self):
        self.shape = None
        self.sizes = []
        self.last = []
        self.shapes = set()
        self.of_loader = False

    def add(self, shape, of_loader=False):
        """Add a batch by the result of shape_of() for it."""
        self.of_loader |= of_loader
        if shape is None:
            return
        self.sizes.append(shape[0][0])
        self.shapes.add(shape)
        if self.shape is None:
            self.shape = shape

    def end_update(self):
        """Keep the sizes since the last update as those of this update."""
        if self.sizes:
            self.last = self.sizes
            self.sizes = []


class Evaluation:
    """The memory that evaluation keeps of each batch, such as the logits of all of them.

    Attributes:
        grows: whether the last batch has left memory.
        kept: bytes that each batch of the largest evaluation so far has left, 0 if none.
        batches: the number of batches that evaluation has in all, None if that is not known.
        seen: those that it was given here.
        left: bytes in use after these.
        ends: numbers of operations at the end of those batches that have left `kept`.
    """

    def __init__(self, watch):
        self.grows = False
        self.kept = 0
        self.batches = None
        self.seen = self.left = 0
        self.ends = []
        self._watch = watch
        self._left = []  # (operations, bytes in use) at the end of each batch
        self._loader = None

    def begin(self, loader):
        """Begin an evaluation over the batches of a loader."""
        self.grows = False
        self._left = []
        self._loader = loader

    def end_batch(self):
        """Note the end of a batch."""
        self._left.append((len(self._watch.places), torch.cuda.memory_allocated()))
        self._watch.place()  # what comes after, such as the end of the script, is not of the batch
        # The first batch leaves other things as well, and a loader of accelerate fetches it twice
        # before it is computed.
        ends, sizes = zip(*self._left[1:]) if self._left[1:] else ((), ())
        self.grows = len(sizes) > 1 and sizes[-1] - sizes[-2] >= LEAST_GROWTH
        if len(sizes) <= MANY or not steady(sizes[1:]):
            return
        more = (sizes[-1] - sizes[1]) // (len(sizes) - 2)
        if more >= self.kept:
            self.kept = more
            self.seen, self.left = len(self._left), sizes[-1]
            self.ends = ends[1:]
            self.batches = len(self._loader) if hasattr(self._loader, "__len__") else None


def steady(sizes):
    """Return the least of the increases of a size if these are about the same, else 0."""
    more = [after - before for before, after in zip(sizes, sizes[1:])]
    # One increase proves nothing: a moving average of the weights is allocated once, too.
    if len(more) < 2 or not LEAST_GROWTH <= min(more) >= max(more) / STEADY:
        return 0
    return min(more)


class Updates:
    """Counts the updates of a script; the first call of a module that trains begins training.

    Attributes:
        count: updates so far.
        loaded: the number of operations when training began, None before.
        load_peaks: the peaks of PyTorch's counters until then, in bytes.
        backwards: backward passes so far.
        model_name, module_types: of the first module that trained; None and () before.
        vocabulary: the number of symbols of its largest embedding, None without one.
        starts: numbers of operations: where each watched update began, and where the last ended.
        totals, operations: the cost of the last update that was watched.
        time: of the last update that was watched, {"ms", "busy_ms", "pieces"}; None before two.
        batches: a Batches.
    """

    def __init__(self, watch, limits):
        self.count = 0
        self.loaded = None
        self.load_peaks = dict.fromkeys(process.PEAKS, 0)
        self.backwards = 0
        self.model_name = None
        self.module_types = ()
        self.vocabulary = None
        self.starts = []
        self.totals = None
        self.operations = []
        self.time = None
        self.batches = Batches()
        self._watch = watch
        self._limits = limits
        # Weak references: a script may train several models, one after the other, and a model that
        # is kept here would take memory that the script has freed.
        self._model = lambda: None
        self._steps = weakref.WeakKeyDictionary()  # {optimizer: its steps}
        self._called = weakref.WeakSet()
        self._updates_by_hand = 0  # without an optimizer
        self._ends = None  # process.times() of the last update that was watched
        # When each update has ended: operations so far, and the bytes that are then in use.
        self._left = {"operations": [], "allocated": [], "reserved": []}
        self._called_as = lambda: None  # the model, or what wraps it
        self._is_called = False  # since the last backward pass
        self._forward_shape = None  # of the inputs of the last forward pass

    @property
    def model(self):
        """The first module that trained, None before, and when it is gone."""
        return self._model()

    def before_forward(self, module, args):
        """Observe the call of a module: a hook for register_module_forward_pre_hook()."""
        if torch.compiler.is_compiling():
            return
        if next(module.parameters(), None) is None:  # such as a transform of torchvision
            return
        trains = module.training and torch.is_grad_enabled()
        self._find_update_by_hand()
        if self._watch.is_between_modules():
            self._watch.evaluates = not (module.training or torch.is_grad_enabled())
            if module not in self._called:  # one that does not train has weights, too
                self._called.add(module)
                self._watch.note_group({"params": module.parameters()})
        if trains and self.loaded is None:
            self._take_model(module)
            self._begin_training()
        if not IS_TOLD:
            self._watch.place()
        # A model called as model(**batch) has no positional inputs. Then the first module inside of
        # it that has some counts: the embedding, with the tokens.
        if trains and (self._watch.is_between_modules() or not self._forward_shape):
            self._forward_shape = shape_of(args)
            self._is_called |= module is self._called_as()

    def backward(self, original, *args, **kwargs):
        """Observe a backward pass, in place of torch.autograd.backward()."""
        self.backwards += 1
        if not self._steps and not self._updates_by_hand:
            self._limits.check_backwards(self.backwards)
        # Without a loader, each backward pass that the model was called for is of another batch.
        if not self.batches.of_loader and (self._is_called or not self.batches.sizes):
            self.batches.add(self._forward_shape)
        self._is_called = False
        if self.loaded is None:  # no module that trains was called, such as in a compiled function
            self._begin_training(in_backward=True)
        return original(*args, **kwargs)

    def after_step(self, optimizer, *_):
        """Count the steps of an optimizer: a hook for register_optimizer_step_post_hook().

        Of several optimizers, as of a GAN, the first one to step ends an update.
        """
        steps = self._steps.get(optimizer, 0) + 1
        self._steps[optimizer] = steps
        if steps > self.count:
            self._end_update()

    def growth(self, confirmed=True):
        """Return what grows with each update, and by how many bytes; None, 0 if nothing does.

        That is "allocated" or "reserved" memory, to which all updates add about the same. Reserved
        memory also grows for a while before it suffices, so it has to be `confirmed` by updates
        after the watched ones. With batches of different shapes memory varies anyway.
        """
        for name in ("allocated", "reserved") if len(self.batches.shapes) < 2 else ():
            more = steady(self._left[name])
            if name == "allocated" or not confirmed or self.count > self._limits.watched:
                if more:
                    return name, more
        return None, 0

    def grown(self):
        """Return the numbers of operations at the end of the first, second last and last update."""
        first, *_, until, end = self._left["operations"]
        return first, until, end

    def _find_update_by_hand(self):
        """Count an update if weights have changed since a backward pass, without an optimizer."""
        changed = self._watch.has_changed
        self._watch.has_changed = False
        if not changed or not self.backwards or self._steps:
            return
        self._updates_by_hand += 1
        # A new model in the memory of an old one writes there, too; its optimizer is yet to step.
        if self._updates_by_hand > self.count:
            self._end_update()
        if self.model is not None:
            self._watch.note_group({"params": self.model.parameters()})

    def _take_model(self, module):
        self._called_as = weakref.ref(module)
        for name in ("_orig_mod", "module"):  # what compile(), DistributedDataParallel, ... wrap
            while isinstance(inner := getattr(module, name, None), torch.nn.Module):
                module = inner
        self._model = weakref.ref(module)
        self.model_name = type(module).__name__
        self.module_types = collections.Counter(type(part) for part in module.modules())
        words = [part for part in module.modules() if isinstance(part, torch.nn.Embedding)]
        self.vocabulary = max((part.num_embeddings for part in words), default=None)
        if any(self.vocabulary == part.embedding_dim for part in words):
            self.vocabulary = None  # logits would look like anything else
        self._watch.note_group({"params": module.parameters()})
        allocated = (p for p in module.parameters() if not is_lazy(p) and on_gpu(p))
        self._watch.weights = {address(p) for p in allocated}

    def _begin_training(self, in_backward=False):
        self._watch.begin_training(in_backward)
        self.loaded = len(self._watch.places)
        self.load_peaks = process.restart_peaks()
        self.starts.append(self.loaded)

    def _end_update(self):
        self.count += 1
        self._left["operations"].append(len(self._watch.places))
        self._left["allocated"].append(torch.cuda.memory_allocated())
        self._left["reserved"].append(torch.cuda.memory_reserved())
        if self.count <= self._limits.watched:
            self.starts.append(len(self._watch.places))
            self.totals = self._watch.cost.totals()
            self.operations = list(self._watch.cost.operations)
            self.batches.end_update()
            ends = process.times()
            if self._ends:
                self.time = process.passed(self._ends, ends)
            self._ends = ends
        self._watch.place()  # what comes after, such as the end of the script, is not of the update
        self._watch.cost.start()
        if self.count == self._limits.watched and self.growth(confirmed=False)[0]:
            self._limits.take_more()
        self._limits.check_updates(self.count)
