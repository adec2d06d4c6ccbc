"""Promise: the calculator finds what the simulation finds, in the browser as in Python."""

import re
import shlex

import pytest
import torch
import torchvision
from conftest import NAMES, TEXT
from transformers import AutoConfig
from workshop_page import WIDTH, reopened

from shared.predict import command as predictor
from shared.predict import shapes
from shared.records import scripts
from shared.report import arithmetic, calculator
from shared.text.cli import TASK
from shared.text.models import KNOWN

pytest_plugins = "browsing"

SHAPES, RECORDS, WAYS = shapes.known(), calculator.records(), calculator.ways()
CLOSE = 0.05  # of the peak: what the page says of the formulas
LLAMA, BERT = "meta-llama/Meta-Llama-3-8B", "google-bert/bert-large-uncased"
ALL_ON = "precision:bf16,states:0,gpus:4,checkpointing:1,offload:1"
STATES = [
    f"vit_b_16,batch:16,micro:4,{ALL_ON}",
    "vit_h_14,precision:mixed,layers:5,mlp:777,pixels:28",
    f"{LLAMA},kv_heads:32,tokens:300,gpus:4",
    f"{BERT},micro:5,vocabulary:100,{ALL_ON}",
    f"google/bigbird-roberta-base,{ALL_ON}",
    "bigscience/bloom-560m,micro:3,precision:bf16",
    "Qwen/Qwen3-0.6B,layers:1,checkpointing:1",
]
WRONG = {
    "vit_b_16,heads:7": "A width of 768 does not divide by 7 heads.",
    "vit_b_16,layers:": "Layers: write a whole number of at least 1.",
    "vit_b_16,pixels:225": "An edge of 225 px does not divide by patches of 16 px.",
    "vit_b_16,gpus:3": "A batch of 64 images does not divide by 3 GPUs.",
    f"{BERT},tokens:600": "The model has no more than 512 positions for 600 tokens.",
    "google/bigbird-roberta-base,tokens:512": "Attention by blocks needs a multiple of 64",
}


@pytest.mark.parametrize("name", dict.fromkeys(r["model"] for r in RECORDS))
def test_every_stored_simulation_is_near(name):
    """Both are of the same version: the formulas are checked where the records were made."""
    its = [r for r in RECORDS if r["model"] == name]
    stages = TEXT if name in KNOWN else NAMES
    assert {r["script"] for r in its if not r["technique"]} >= {*stages}
    for record in its:
        assert abs(calculator.miss(SHAPES[name], record)) < CLOSE, record
        for moment, held in arithmetic.moments(calculator.numbers(SHAPES[name], record)):
            assert all(value >= 0 for value in held.values()), (record, moment)


@pytest.mark.parametrize("name", SHAPES)
def test_the_number_of_weights_is_exact(name):
    with torch.device("meta"):
        if name in shapes.VITS:
            edge = {} if SHAPES[name]["pixels"] == 224 else {"image_size": SHAPES[name]["pixels"]}
            model = torchvision.models.get_model(name, num_classes=10, **edge)
        else:
            model = TASK.auto.from_config(AutoConfig.from_pretrained(KNOWN[name]))
    numbers = calculator.numbers(SHAPES[name], RECORDS[0])
    assert arithmetic.parts(numbers)["N"] == sum(p.numel() for p in model.parameters())


def test_the_scripts_switches_are_what_they_say():
    precision = {"fp32": "32-true", "mixed": "16-mixed", "bf16": "bf16-true"}
    for way in (way for way in WAYS if not way["technique"]):
        source = scripts.get(way["script"]).path.read_text()
        assert ("partial(checkpoint, " in source) == way["checkpointing"]
        assert ("CPUOffloadPolicy" in source) == way["offload"]
        assert ("optim.Adam" in source) == (way["states"] == 2)
        assert f'precision="{precision[way["precision"]]}"' in source
        assert re.search(r"\bMICRO_BATCH_SIZE = ", source) or not way["micro"]


def choose(page, state):
    page.evaluate("state => Address.set('calc', state)", state)


def text(page, part):
    return page.locator(f"#calc-{part}").inner_text()


def asked(command):
    """Returns what the predictor makes of a command that is shown."""
    assert command.startswith("python -m shared.predict ")
    return predictor.parse(shlex.split(command)[3:])


def test_both_languages_find_the_same(visit):
    page = visit()
    for state in STATES:
        choose(page, state)
        found = page.evaluate("Formulas.moments(Calculator.inputs()).map(m => [m.name, m.rows])")
        inputs = page.evaluate("Calculator.inputs()")
        expected = arithmetic.moments(inputs)
        assert [name for name, _ in found] == [name for name, _ in expected]
        for (_, rows), (name, held) in zip(found, expected):
            assert {label: value for label, value, *_ in rows} == pytest.approx(held), name
        gb = sum(arithmetic.peak(inputs)[1].values()) / 1e9
        said = f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"
        assert f"{said} per GPU" in text(page, "said")


def test_what_is_chosen_gets_its_command(visit):
    page = visit()
    for model in ("vit_b_16", BERT):
        page.locator("#calc-model").select_option(model)
        names = page.locator("#calc-way option").evaluate_all("all => all.map(o => o.value)")
        ways = [way for way in WAYS if way["name"] in names]
        assert len(ways) == len(names) - 1 > 5
        for way in ways:
            page.locator("#calc-way").select_option(way["name"])
            assert text(page, "why").startswith("This command predicts exactly this.")
            args = asked(text(page, "command"))
            assert args.models == [model] and args.batch_size == way["batch"]
            assert args.one_by_one if way["technique"] else args.names == [way["script"]]
            if not way["technique"]:
                assert args.micro_batch_size == way["micro"]
                assert args.devices == (way["gpus"] if way["shards"] else None)
    choose(page, "vit_b_16,precision:mixed,states:0")
    assert "has Adam, not SGD" in text(page, "why") and asked(text(page, "command"))


def test_a_stored_prediction_is_told_with_the_distance(visit):
    page, which = visit(360, 740), ("vit_b_16", "05_grad_accum/train")
    (record,) = [r for r in RECORDS if (r["model"], r["script"]) == which]
    page.locator("#calc-model").select_option(which[0])
    page.locator("#calc-way").select_option(which[1])
    miss = 100 * calculator.miss(SHAPES["vit_b_16"], record)
    assert f"{record['peak'] / 1e6:.1f} MB; by these formulas" in text(page, "near")
    much = f"{abs(miss):.1f} % {'more' if miss > 0 else 'less'}"
    assert (much if abs(miss) >= 0.05 else "the same") in text(page, "near")
    page.locator("[data-field=layers]").fill("13")
    assert "No prediction by simulation is stored" in text(page, "near")
    said = text(page, "said")
    reopened(page)
    assert text(page, "said") == said and page.evaluate(WIDTH) <= 360
    page.locator("#calculator summary").click()
    assert page.locator("#calc-names tr").count() > 20 and page.evaluate(WIDTH) <= 360


def test_wrong_numbers_get_one_sentence(visit):
    page = visit()
    for state, wrong in WRONG.items():
        choose(page, state)
        assert text(page, "wrong").startswith(wrong)
        assert not page.locator("#calc-result").is_visible()
    for state in ("no_model,layers:3", "vit_b_16,nothing:1,precision:x,states:9", ",,:"):
        choose(page, state)
        assert page.locator("#calc-model").input_value() in SHAPES and text(page, "said")
