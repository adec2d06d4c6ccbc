"""The fields of a record, written down once."""

from typing import TypedDict


class Phase(TypedDict):
    """Peak memory while loading or training, in GB (1e9 bytes), of the process that needs most."""

    device_peak_gb: float  # allocated
    device_reserved_gb: float | None  # by the caching allocator; None on a CPU, which has none
    host_peak_gb: float | None  # None on a CPU, where device and host are one
    breakdown_gb: dict[str, float]  # of the device's peak, by category


class Cost(TypedDict, total=False):
    """What an update costs each device."""

    tflop: float  # 1e12 floating-point operations of products, convolutions and attention
    moved_gb: float  # that operations read and write in the device's memory
    gathered_gb: float  # tensors that devices send each other, put together
    reduced_gb: float  # the same, added up
    to_device_gb: float  # from the host
    to_host_gb: float
    moved_on_host_gb: float  # that operations on the host, such as a step, read and write there
    operations: int  # that are started on the device


class Bound(TypedDict, total=False):
    """The least time of an update, by the highest rates of a device."""

    ms: float
    by: str  # what takes most of it: arithmetic, memory, other GPUs, host link
    parts_ms: dict[str, float]  # which add up to it
    beside_ms: dict[str, float]  # what runs beside it, on other streams
    in_cache_ms: float  # if whatever fits in the L2 cache stays there


class Way(TypedDict, total=False):
    """How a script gets to a batch size on a card."""

    card_gb: float
    needs_gb: float  # on each GPU, with what is not simulated
    world_size: int
    batch_size: int  # over all devices
    share: int  # of it, for each device
    at_once: int  # how many of the share fit in one forward pass; 0 if not even one does
    missing: str | None  # what the script needs and the card has not: bf16
    bound: Bound
    techniques: list  # of a combination of techniques, if it is one


class Record(TypedDict, total=False):
    """What one training needed and achieved, or is predicted to need."""

    script: str  # folder and file, such as "06_sgd/train"
    preset: str
    model: str
    image_px: int  # of images: the edge
    max_length: int  # of texts: tokens
    pretrained: bool | None
    dataset: str | None
    device: str
    world_size: int
    shares: int | None  # of a batch: one for each device, unless devices compute with the same
    precision: str
    batch_size: int  # over all devices
    micro_batch_size: int | None
    seed: int | None
    epochs: int | None
    steps: int  # updates
    resumed_at: int | None  # updates before the last --resume, which are in steps too
    load: Phase
    train: Phase
    input_shapes: list | None  # of the first input of the updates that the ledger has seen
    images_per_second: float | None
    texts_per_second: float | None
    train_seconds: float | None
    train_accuracy: float | None  # from 0 to 1, in the last epoch, while training
    val_accuracy: float | None
    test_accuracy: float | None
    train_perplexity: float | None  # of models that go on with texts; in the last epoch
    val_perplexity: float | None
    test_perplexity: float | None
    first_loss: float | None
    last_loss: float | None
    versions: dict[str, str]
    git_commit: str | None
    command: str | None
    date: str
    # of predictions:
    as_torch: str | None  # whose workspaces are in it, such as "2.15"; None on a CPU
    technique: str | None  # the last one that was applied, if not all of them
    peak_at: dict[str, dict]  # for each phase, in which pass and module its peak is
    host_breakdown_gb: dict[str, dict[str, float] | None]  # of the host's own peak
    cost: Cost | None
    bound: Bound | None  # None if the device's rates are not known
    seconds: float  # that it took; of measurements by the ladder, too
    late_zero_grad: bool
    way: Way  # and those with other combinations of techniques
    combinations: list
    fits: dict  # card_gb, needs_gb, fits, largest_micro_batch
    measured: "Record"  # by --check
    # by the ladder:
    fingerprint: str  # of all that the measurement depends on
    ladder: str  # its command


MEASURED = list(Record.__annotations__)[: list(Record.__annotations__).index("as_torch")]
# Fields that are only for images, or texts, or models that are judged so.
ONLY = dict.fromkeys(("image_px", "images_per_second"), "images")
ONLY |= dict.fromkeys(("max_length", "texts_per_second"), "texts")
ONLY |= dict.fromkeys((f"{part}_perplexity" for part in ("train", "val", "test")), "perplexity")


def unknown(task):
    """Returns the fields of a measurement, all None: what was not measured is null, never 0."""
    fit = (None, task.unit, task.learned)
    return dict.fromkeys(name for name in MEASURED if ONLY.get(name) in fit)
