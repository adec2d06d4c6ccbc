"""Promise: losses and memory of side roads, beside their parents', are as the docstrings say.

    python -m pytest -q tests/lab/test_side_road_records.py

`python -m shared records road NAME` makes the records of a new road.
"""

import re

import pytest
from conftest import NAMES, ROADS, TEXT
from helpers.predictions import tensors_gb

from shared.lab.lessons import side_roads
from shared.lab.records import reading, scripts, stored

FAILS = "not a number after one update"
PRETRAINED = "other; they fall if the weights are pretrained"
# The stages in fp32 on one device, from whose records the number of weights follows.
WHOLE = {"images": "01_baseline/train", "texts": "11_llm/before"}
NEARLY = 0.005  # of the parent's peak, up to which memory is "nearly the same"
SCALAR_GB = 4.1e-9  # one number, and what rounding of records adds
SCALARS_GB = 2e-6  # on the host: such as an optimizer's count for each tensor
DEVICE_PEAKS = ("device_peak_gb", "device_reserved_gb")


def test_what_they_learn():
    """Accuracy, perplexity or reward in the record of one epoch."""
    files = stored.TINY_MEASURED, stored.TINY_SIDE_ROADS
    measured = {name: r for file in files for name, r in stored.measurements(file).items()}
    assert set(measured) == {*NAMES, *TEXT, *ROADS}
    for name in ROADS:
        if "test_perplexity" in measured[name]:
            assert measured[name]["test_perplexity"] < 8  # of 4,096 tokens
            continue
        if "test_reward" in measured[name]:
            assert measured[name]["test_reward"] > 0.8  # at random a quarter
            continue
        losses = scripts.get(name).losses
        stage = measured[scripts.get(name).parent.replace("/plain", "/train")]
        least = 0.8 if losses == PRETRAINED else stage["test_accuracy"] - 0.06
        learns = measured[name]["test_accuracy"] > least
        assert learns == (losses not in (FAILS, PRETRAINED)), name
    assert measured["03_bf16/fp16_true"]["test_accuracy"] < 0.2


def weights(name):
    """Return the number of weights of a script's model at full size, in billions."""
    record = side_roads.records()[name]
    whole = side_roads.records()[WHOLE[reading.unit(record)]]
    message = f"{name} has another model: say 'more' or 'less' in its docstring, without N"
    assert reading.setting(record) == reading.setting(whole), message
    return whole["train"]["breakdown_gb"]["parameters"] / 4


def assert_amount(name, amount, more, before):
    """Assert that a side road's GB beyond its parent's are as its docstring says."""
    if amount == "more":
        assert more > NEARLY * before
    elif amount == "less":
        assert -more > NEARLY * before
    elif amount == "nearly the same":
        assert more == pytest.approx(0, abs=NEARLY * before)
    else:
        about, times, direction = re.fullmatch(r"(about )?(\d*)N bytes (.*)", amount).groups()
        wanted = int(times or 1) * weights(name) * (1 if direction == "more" else -1)
        close = {"rel": 0.05} if about else {"abs": SCALAR_GB}
        assert more == pytest.approx(wanted, **close)


@pytest.mark.parametrize("name", ROADS)
def test_memory_is_as_the_docstring_says(name):
    names = name, scripts.get(name).parent
    now, before = (side_roads.records()[n]["train"] for n in names)
    device, host = scripts.get(name).memory
    if device == "the same":
        assert [now[peak] for peak in DEVICE_PEAKS] == [before[peak] for peak in DEVICE_PEAKS]
    elif "N bytes" in device:  # of tensors, without rounding and workspaces
        sums = [sum(tensors_gb(phase).values()) for phase in (now, before)]
        assert_amount(name, device, sums[0] - sums[1], sums[1])
    else:
        more = now["device_peak_gb"] - before["device_peak_gb"]
        assert_amount(name, device, more, before["device_peak_gb"])
    more_on_host = now["host_peak_gb"] - before["host_peak_gb"]
    if host == "the same":
        assert more_on_host == pytest.approx(0, abs=SCALARS_GB)
    else:
        assert_amount(name, host, more_on_host, before["host_peak_gb"])
