"""Promise: the page calculates what the formulas say, and names the command that predicts it."""

import json
import shlex

import pytest
from workshop_page import settled

from shared.predict import command as predictor
from shared.predict import shapes
from shared.report import arithmetic, calculator

pytest_plugins = "browsing"

KNOWN = shapes.known()
WAYS = calculator.ways()
LLAMA, BERT = "meta-llama/Meta-Llama-3-8B", "google-bert/bert-large-uncased"
ALL_ON = "precision:bf16,states:0,gpus:4,checkpointing:1,offload:1"


def choose(page, state):
    page.evaluate("state => Address.set('calc', state)", state)


def text(page, part):
    return page.locator(f"#calc-{part}").inner_text()


def asked(page):
    """Returns what the predictor makes of the command that is shown."""
    python, m, module, *argv = shlex.split(text(page, "command"))
    assert (python, m, module) == ("python", "-m", "shared.predict")
    return predictor.parse(argv)


STATES = [
    f"vit_b_16,batch:16,micro:4,{ALL_ON}",
    "vit_h_14,precision:mixed,layers:5,mlp:777,pixels:28",
    "vit_l_32,micro:8,states:1",
    f"{LLAMA},kv_heads:32,tokens:300,gpus:4",
    f"{BERT},micro:5,vocabulary:100,{ALL_ON}",
    f"google/bigbird-roberta-base,{ALL_ON}",
    "bigscience/bloom-560m,micro:3,precision:bf16",
    "Qwen/Qwen3-0.6B,layers:1,checkpointing:1",
]


def test_both_languages_find_the_same(visit):
    page = visit()
    for state in STATES:
        same(page, state)


def same(page, state):
    choose(page, state)
    found = page.evaluate("Formulas.moments(Calculator.inputs()).map(m => [m.name, m.rows])")
    inputs = page.evaluate("Calculator.inputs()")
    expected = arithmetic.moments(inputs)
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, rows), (name, held) in zip(found, expected):
        assert {label: value for label, value, *_ in rows} == pytest.approx(held), name
    gb = sum(arithmetic.peak(inputs)[1].values()) / 1e9
    assert f"{gb:.2f} GB per GPU" in text(page, "said") or f"{gb * 1e3:.1f} MB" in text(
        page, "said"
    )


def test_every_script_and_technique_gets_its_command(visit):
    page = visit()
    for model in ("vit_b_16", BERT):
        page.locator("#calc-model").select_option(model)
        names = page.locator("#calc-way option").evaluate_all("all => all.map(o => o.value)")
        for way in (way for way in WAYS if way["name"] in names):
            page.locator("#calc-way").select_option(way["name"])
            assert text(page, "why").startswith("This command predicts exactly this.")
            args = asked(page)
            assert args.models == [model] and args.batch_size == way["batch"]
            if way["technique"]:
                assert args.one_by_one and f"+ {way['technique']}”" in text(page, "why")
                continue
            assert args.names == [way["script"]]
            assert args.micro_batch_size == way["micro"]
            assert args.devices == (way["gpus"] if way["shards"] else None)
    assert len(names) - 1 + 12 == len(WAYS)


def test_a_stored_prediction_is_told_with_the_distance(visit):
    page, which = visit(), ("vit_b_16", "05_grad_accum/train")
    (record,) = [r for r in calculator.records() if (r["model"], r["script"]) == which]
    page.locator("#calc-model").select_option("vit_b_16")
    page.locator("#calc-way").select_option("05_grad_accum/train")
    miss = calculator.miss(KNOWN["vit_b_16"], record)
    assert f"{record['peak'] / 1e6:.1f} MB; by these formulas" in text(page, "near")
    assert f"{abs(miss):.1%}".replace("%", " % less") in text(page, "near")
    page.locator("[data-field=layers]").fill("13")
    assert "No prediction by simulation is stored" in text(page, "near")
    assert page.locator("#calc-way").input_value() == "05_grad_accum/train"


NEAREST = [
    ("vit_b_16,precision:mixed,states:0", "has Adam, not SGD"),
    ("vit_b_16,precision:mixed,gpus:4", "No script does exactly this"),
    (f"{BERT},precision:mixed", "computes in fp32, not mixed"),
    ("vit_b_16,layers:13", "predicts vit_b_16 with its own numbers"),
]


def test_what_no_script_does_gets_the_nearest_command(visit):
    page = visit()
    for state, why in NEAREST:
        choose(page, state)
        assert why in text(page, "why")
        asked(page)


def test_an_own_language_model_is_predicted_from_a_folder(visit, tmp_path):
    page = visit()
    choose(page, f"{BERT},layers:2")
    assert "--model FOLDER" in text(page, "command") and "config.json" in text(page, "why")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    argv = text(page, "command").replace("FOLDER", str(tmp_path)).split()[3:]
    assert predictor.parse(argv).names == ["11_llm/before"]


WRONG = [
    ("vit_b_16,heads:7", "A width of 768 does not divide by 7 heads."),
    ("vit_b_16,layers:0", "Layers: write a whole number of at least 1."),
    ("vit_b_16,layers:-3", "Layers: write a whole number of at least 1."),
    ("vit_b_16,layers:", "Layers: write a whole number of at least 1."),
    ("vit_b_16,width:1.5", "Width: write a whole number of at least 1."),
    ("vit_b_16,batch:99999999", "Batch, per update: write a number up to 10,000,000."),
    ("vit_b_16,pixels:225", "An edge of 225 px does not divide by patches of 16 px."),
    ("vit_b_16,gpus:3", "A batch of 64 images does not divide by 3 GPUs."),
    (f"{LLAMA},kv_heads:5", "32 heads do not divide by 5 heads of keys and values."),
    (f"{BERT},tokens:600", "The model has no more than 512 positions for 600 tokens."),
    ("google/bigbird-roberta-base,tokens:512", "Attention by blocks needs a multiple of 64"),
]


def test_wrong_numbers_get_one_sentence(visit):
    page = visit()
    for state, wrong in WRONG:
        choose(page, state)
        assert text(page, "wrong").startswith(wrong)
        assert not page.locator("#calc-result").is_visible()
    choose(page, "vit_b_16")
    assert text(page, "wrong") == "" and page.locator("#calc-result").is_visible()


def test_a_strange_address_does_no_harm(visit):
    page = visit()
    for state in ("no_model,layers:3", "vit_b_16,nothing:1,precision:x,states:9", ",,:"):
        choose(page, state)
        assert page.locator("#calc-model").input_value() in KNOWN
        assert text(page, "said") or text(page, "wrong")


def test_choices_are_in_the_address(visit):
    page = visit()
    page.locator("#calc-model").select_option(LLAMA)
    page.locator("[data-field=tokens]").fill("1024")
    page.locator("[data-field=checkpointing]").check()
    page.locator("[data-field=precision]").select_option("bf16")
    said, place = text(page, "said"), "#" + settled(page).partition("#")[2]
    again = visit()
    assert text(again, "said") != said
    again.evaluate("place => { location.hash = place; }", place)
    again.wait_for_function(
        "said => document.querySelector('#calc-said').innerText === said", arg=said
    )
    assert again.locator("[data-field=tokens]").input_value() == "1024"


def test_on_a_phone_and_by_keyboard(visit):
    page = visit(360, 740)
    choose(page, f"{LLAMA},{ALL_ON}")
    page.locator("#calculator summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#calc-names tr").count() > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    wide = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.locator("#calculator td, #calculator th, #calculator p").evaluate_all(wide) == 0
    assert page.locator("#calc-moments .track").first.get_attribute("aria-label")
