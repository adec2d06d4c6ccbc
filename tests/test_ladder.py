"""Promise: every stage runs, and holds less memory than the one before."""

import re
from types import SimpleNamespace

import pytest
from conftest import NAMES, SHARDED, TEXT, run

from shared.images.task import TASK as IMAGES
from shared.ladder import command as ladder_module
from shared.records import tables
from shared.records.record import read


def peaks(records, phase):
    return [records[name][phase]["device_peak_gb"] for name in NAMES]


def test_every_stage_has_a_record(ladder):
    _, printed, records = ladder
    assert list(records) == NAMES + TEXT
    for name in NAMES + TEXT:
        assert name in printed
        assert records[name]["world_size"] == (
            4 if name in SHARDED or name == "11_llm/train" else 1
        )
        assert records[name]["steps"] > 3


@pytest.mark.parametrize("before, after", list(zip(NAMES[:8], NAMES[1:9])))
def test_training_peak_falls(ladder, before, after):
    records = ladder[2]
    if after == "07_init_module/train":  # is about loading
        assert (
            records[after]["train"]["device_peak_gb"] <= records[before]["train"]["device_peak_gb"]
        )
        assert records[after]["load"]["device_peak_gb"] < records[before]["load"]["device_peak_gb"]
    else:
        assert (
            records[after]["train"]["device_peak_gb"] < records[before]["train"]["device_peak_gb"]
        )


def test_loading_without_a_second_copy(ladder):
    # 06 holds the model and the state dict, both in fp32; 07 one copy in bf16: the file is mapped.
    records = ladder[2]
    weights = records["07_init_module/train"]["train"]["breakdown_gb"]["parameters"]
    assert records["06_sgd/train"]["load"]["device_peak_gb"] == pytest.approx(4 * weights, rel=0.01)
    assert records["07_init_module/train"]["load"]["device_peak_gb"] == pytest.approx(
        weights, rel=0.02
    )


def test_each_stage_saves_what_its_page_says(ladder):
    held = {name: ladder[2][name]["train"]["breakdown_gb"] for name in NAMES}
    assert (
        held["02_mixed_precision/train"]["activations"]
        < 0.65 * held["01_baseline/train"]["activations"]
    )
    assert held["02_mixed_precision/train"]["parameters"] == held["01_baseline/train"]["parameters"]
    assert held["03_bf16/train"]["parameters"] == held["01_baseline/train"]["parameters"] / 2
    assert held["03_bf16/train"]["optimizer states"] == pytest.approx(
        held["01_baseline/train"]["optimizer states"] / 2, rel=0.001
    )
    assert held["04_batchsize/train"]["activations"] == pytest.approx(
        held["03_bf16/train"]["activations"] / 4, rel=0.01
    )
    assert held["05_grad_accum/train"]["activations"] == pytest.approx(
        held["04_batchsize/train"]["activations"] / 4, rel=0.01
    )
    assert (
        "optimizer states" in held["05_grad_accum/train"]
        and "optimizer states" not in held["06_sgd/train"]
    )
    assert held["08_fsdp/train"]["parameters"] == pytest.approx(
        held["07_init_module/train"]["parameters"] / 4, rel=0.05
    )
    assert held["09_act_ckpt/train"]["activations"] < held["08_fsdp/train"]["activations"] / 4
    assert "recomputed" in held["09_act_ckpt/train"] and "recomputed" not in held["08_fsdp/train"]


def test_breakdown_adds_up_to_the_peak(ladder):
    for record in ladder[2].values():
        for phase in ("load", "train"):
            assert sum(record[phase]["breakdown_gb"].values()) == pytest.approx(
                record[phase]["device_peak_gb"], rel=1e-9
            )


def test_fine_tuning_works_at_every_stage(ladder):
    accuracy = [ladder[2][name]["test_accuracy"] for name in NAMES]
    assert min(accuracy) >= 0.93
    assert min(accuracy) >= accuracy[0] - 0.03


def test_offloading_changes_no_loss(ladder):
    assert ladder[2]["10_offload/train"]["last_loss"] == ladder[2]["09_act_ckpt/train"]["last_loss"]


def test_unmeasured_is_null(ladder):
    for record in ladder[2].values():
        assert (
            record["train"]["device_reserved_gb"] is None
        )  # there is no caching allocator on a CPU
        assert record["train"]["host_peak_gb"] is None


def test_picture(ladder):
    assert (ladder[0] / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_a_stage_that_fails_is_shown_and_the_others_run(tmp_path):
    printed = run(
        "-m",
        "shared.ladder",
        "08,06",
        "--preset",
        "tiny",
        "--devices",
        3,
        "--max-steps",
        4,
        "--out",
        tmp_path,
        code=1,
    )
    assert "08_fsdp/train            FAILED" in printed
    assert "a batch of 16 images does not divide by 3" in printed
    assert "06_sgd/train             done" in printed
    assert [r["script"] for r in read(tmp_path / "ladder.jsonl")[0]] == ["06_sgd/train"]


def test_predictions_stand_beside_what_was_measured(ladder):
    lines = ladder[1].splitlines()
    assert "Warning" not in ladder[1]
    heading = next(line.split() for line in lines if line.startswith("script "))
    assert heading[:6] == ["script", "load", "MB", "train", "MB", "predicted"]
    for name, record in ladder[2].items():
        cells = next(line.split() for line in reversed(lines) if line.startswith(name))
        assert cells[2] == cells[3] == f"{record['train']['device_peak_gb'] * 1000:.2f}"


def test_a_prediction_that_fails_loses_no_measurement(tmp_path, monkeypatch, capsys):
    def fail(jobs):
        raise KeyError("a private name")

    record = {
        "script": "06_sgd/train",
        "image_px": 32,
        "world_size": 1,
        "input_shapes": [[16, 3, 32, 32]],
    }
    monkeypatch.setattr(ladder_module, "run_jobs", fail)
    args = SimpleNamespace(accelerator="cpu", preset="tiny", model="vit_tiny", num_classes=10)
    assert ladder_module.predict({"06_sgd/train": args}, [record]) == {}
    assert capsys.readouterr().out == "- no predictions: KeyError: 'a private name'\n"


def test_table_names_the_unit_and_what_was_saved():
    def record(name, gb):
        phase = {"device_peak_gb": gb, "device_reserved_gb": None, "host_peak_gb": None}
        told = {"images_per_second": None, "test_accuracy": 0.5, "dataset": "digits"}
        return {"script": name, "image_px": 32, "load": phase, "train": phase, **told}

    heading, first, second = tables.measured([record("01_a/x", 2.0), record("02_b/x", 1.0)], {})
    words = "script load GB train GB train vs before train vs first test acc."
    assert heading.split() == words.split()
    assert first.split() == ["01_a/x", "2.00", "2.00", "50.0%"]
    assert second.split() == ["02_b/x", "1.00", "1.00", "-50.0%", "2.0x", "less", "50.0%"]


def test_every_script_tells_how_long_it_is_going_to_take(ladder):
    printed = ladder[1]
    for name in NAMES + TEXT:
        (line,) = [
            line
            for line in printed.splitlines()
            if line.startswith(f"{name} ") and "starts" in line
        ]
        assert re.fullmatch(rf"{name} +starts, about \d+ s", line)


def test_expectations_follow_the_speed_of_this_machine():
    same = {"model": "m", "image_px": 32, "dataset": "digits", "epochs": 1, "command": "python x"}
    before = [{"script": f"0{n}_a/train", "seconds": 10.0 * n, **same} for n in (1, 2)]
    before.append({**before[1], "seconds": 3.0, "command": "python x --max-steps 4"})  # not whole
    sizes = {"model": "m", "image_px": 32, "dataset": "digits"}
    args = SimpleNamespace(max_steps=None, epochs=1, task=IMAGES, **sizes)
    expected = ladder_module.Expectation(before)
    assert expected.of("01_a/train", args) == 10
    expected.took("01_a/train", args, 30.0)  # a machine of a third of the speed
    assert expected.of("02_a/train", args) == 60
    assert expected.of("03_a/train", args) is None
    args.max_steps = 3  # nobody knows
    assert expected.of("02_a/train", args) is None


def test_the_first_line_comes_before_the_imports():
    """The last of these lines is written while none of the heavy packages is imported."""
    code = "import sys; sys.argv = ['ladder', '--help']; sys.stdout.write = lambda text: print("
    code += "text, 'torch' in sys.modules, file=sys.stderr) or sys.exit()\n"
    code += "import runpy; runpy.run_module('shared.ladder', run_name='__main__')"
    assert run("-c", code).startswith("- starting: importing PyTorch False")
