"""The fields of records that the lab makes: predictions, and measurements by the ladder.

shared/record.py has the fields of a script's own measurements. A prediction lacks the fields that
an emulated GPU cannot measure, such as losses.
"""

from typing import TypedDict

from shared.record import Record


class Cost(TypedDict):
    """The cost of an update per device."""

    tflop: float  # 1e12 floating-point operations of products, convolutions and attention
    moved_gb: float  # read and written by operations in the device's memory
    gathered_gb: float  # gathered from other devices
    reduced_gb: float  # reduced over devices
    to_device_gb: float  # copied from the host to the device
    to_host_gb: float  # copied from the device to the host
    moved_on_host_gb: float  # read and written by operations on the host, such as Adam's update
    operations: int  # started on the device


class Time(TypedDict, total=False):
    """The duration of an update on an emulated card, beside a host of the default pace."""

    ms: float
    busy_ms: float  # for which the card is at work
    pieces: int  # of work that the host starts: kernels, copies


class Way(TypedDict, total=False):
    """A configuration in which a script fits a card."""

    card_gb: float
    needs_gb: float  # on each GPU, including memory that is not emulated
    world_size: int  # GPUs
    batch_size: int  # over all devices
    share: int  # of the batch, for each device
    at_once: int  # examples of the share that fit in one forward pass; 0 if not even one does
    host_gb: float  # on the host, for each process
    time: Time  # of an update on the whole batch
    on_host: bool  # whether the host computes a part, whose time is not in it
    techniques: list  # those of a combination, if it is one


class Prediction(Record, total=False):
    """The memory, cost and time of a script on an emulated card."""

    technique: str | None  # the last one applied, if not all of them are
    peak_at: dict  # for each phase, the pass and the module of its peak
    cost: Cost
    time: Time | None  # None if a script ended before its second update
    seconds: float  # that the prediction took
    way: Way
    combinations: list  # Ways with other combinations of techniques
    fits: dict  # card_gb, needs_gb, fits, largest_micro_batch
    kept_by: list  # what made the allocator keep blocks for other streams, lines or words
    pace: dict  # {figure: (least, most)} in GB, where memory depends on the host's pace
    # For a user's own script:
    inputs: str  # the shape of an update's first input, such as 64 x 3 x 224 x 224
    unit: str  # of that input's first dimension
    notes: list  # lines of the script, and why figures there are assumptions
    stopped: str | None  # where the run was ended, if the script goes on
    types_gb: dict  # {category: {type: GB}} at the peak
    operations_gb: dict  # {name of the operation that allocated it: GB} at the peak
    process: dict  # on the host: peak_gb, with all libraries, and pinned_gb of it


class Measurement(Record, total=False):
    """A script's own record, with the fields that the ladder adds."""

    seconds: float  # that the script took
    fingerprint: str  # hash of all that the measurement depends on
    ladder: str  # its command
