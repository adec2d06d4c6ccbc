"""Promise: a prediction is what would be measured, and device memory falls at every stage."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
from conftest import NAMES, PLAIN, SHARDED, TEXT, run
from PIL import Image

from shared import UserError, allocator, fits, lessons, predict, simulation, stages, tables, timeline, workers
from shared.ledger import CATEGORIES

MIB = 2**20


def predicted(*argv):
    """Predicts in processes that start from this one, which is faster than a new Python: records by stage."""
    return {stages.run_of(r): r for r in predict.main([*map(str, argv)])}


def simulated(names, *args, **sizes):
    """The same without tables and pictures."""
    wanted = workers.wanted(*args, **sizes)
    return dict(zip(names, workers.run([("simulation", "predict", name, wanted) for name in names])))


@pytest.fixture(scope="module")
def on_cpu():
    return simulated(NAMES, "cpu", "tiny")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def on_gpu(pictures):
    """The pages' command, without options, and the tiny preset."""
    return {"tiny": predicted("--preset", "tiny", "--timeline", pictures / "new"), "full": predicted()}


@pytest.mark.parametrize("stage", NAMES)
def test_equals_what_is_measured_to_the_byte(ladder, on_cpu, stage):
    for phase in ("load", "train"):
        assert on_cpu[stage][phase] == ladder[2][stage][phase]  # with the breakdown, category by category


def test_one_device_equals_what_is_measured_to_the_byte(tmp_path):
    file = tmp_path / "record.jsonl"
    run("10_offload/train.py", "--preset", "tiny", "--devices", 1, "--max-steps", 3, "--record", file)
    measured = stages.records(file)[0][0]
    record = simulated(["10_offload"], "cpu", "tiny", devices=1)["10_offload"]
    assert record["load"] == measured["load"] and record["train"] == measured["train"]


def test_is_a_record_without_what_was_not_measured(ladder, on_cpu):
    for stage in NAMES:
        measured, record = ladder[2][stage], on_cpu[stage]
        assert set(measured) - set(record) == {"fingerprint", "ladder"}
        for key in ("model", "world_size", "precision", "batch_size", "micro_batch_size"):
            assert record[key] == measured[key]
        for key in ("images_per_second", "train_seconds", "test_accuracy", "first_loss", "last_loss"):
            assert record[key] is None


def test_plain_is_predicted_as_with_fabric(on_gpu):
    # Of the other stages test_equivalence.py shows that plain PyTorch holds the same.
    plain = predicted("--plain", "--preset", "tiny", "02", "07", "08", "10")
    assert list(plain) == [PLAIN[n] for n in (1, 6, 7, 9)]
    for script, record in plain.items():
        stage = record["stage"]
        fabric = on_gpu["tiny"][stage]
        if stage == "07_init_module":  # the one difference: test_equivalence.py says why
            extra = fabric["load"]["breakdown_gb"].get("temporaries", 0)
            assert fabric["load"]["device_peak_gb"] - record["load"]["device_peak_gb"] == pytest.approx(extra)
        else:
            assert record["load"] == fabric["load"] and record["host_breakdown_gb"] == fabric["host_breakdown_gb"]
        for same in ("train", "peak_at", "precision", "world_size"):
            assert record[same] == fabric[same], (script, same)


@pytest.mark.parametrize("preset", ["tiny", "full"])
@pytest.mark.parametrize("before, after", list(zip(NAMES, NAMES[1:])))
def test_device_memory_falls(on_gpu, preset, before, after):
    before, after = on_gpu[preset][before], on_gpu[preset][after]
    if after["stage"] == "07_init_module":  # is about loading, where it saves memory of the host
        assert after["load"]["host_peak_gb"] < 0.01 * before["load"]["host_peak_gb"]
        assert after["train"] == before["train"]
    else:
        assert after["train"]["device_peak_gb"] < before["train"]["device_peak_gb"]


@pytest.mark.parametrize("preset", ["tiny", "full"])
def test_offloaded_shards_are_on_the_host(on_gpu, preset):
    before, after = on_gpu[preset]["09_act_ckpt"], on_gpu[preset]["10_offload"]
    shards = before["train"]["breakdown_gb"]["parameters"]
    host = after["host_breakdown_gb"]["train"]
    assert host["parameters"] == host["gradients"] == shards
    assert after["train"]["host_peak_gb"] == sum(host.values()) > before["train"]["host_peak_gb"]
    assert not {"parameters", "gradients"} & set(after["train"]["breakdown_gb"])


@pytest.mark.parametrize("preset", ["tiny", "full"])
def test_figures_agree_with_each_other(on_gpu, preset):
    for record in on_gpu[preset].values():
        for phase in ("load", "train"):
            p = record[phase]
            assert sum(p["breakdown_gb"].values()) == pytest.approx(p["device_peak_gb"], rel=1e-9)
            assert p["device_peak_gb"] <= p["device_reserved_gb"] < 3 * p["device_peak_gb"] + 2 * 20 * MIB / 1e9
        at = record["peak_at"]["train"]
        assert at["phase"] in ("forward", "backward", "step")
        assert at["module"].startswith(("encoder.layers.encoder_layer_", "distilbert."))
        assert record["peak_at"]["load"]["phase"] == "load"


def test_weights_by_hand(on_gpu):
    # ViT-L/16 at 224 px for 10 classes: https://arxiv.org/abs/2010.11929, table 1
    width, layers, tokens = 1024, 24, 14 * 14 + 1
    block = 4 * width * width + 4 * width + 8 * width * width + 5 * width + 4 * width
    n = layers * block + (3 * 16 * 16 + 1) * width + (tokens + 1) * width + 2 * width + (width + 1) * 10
    held = {name: record["train"]["breakdown_gb"] for name, record in on_gpu["full"].items()}
    assert held["01_baseline"]["parameters"] == 4 * n / 1e9
    assert held["01_baseline"]["optimizer states"] == 8 * n / 1e9
    assert held["06_sgd"]["parameters"] == held["06_sgd"]["gradients"] == 2 * n / 1e9
    assert held["08_fsdp"]["parameters"] == pytest.approx(2 * n / 4 / 1e9, rel=0.01)
    assert on_gpu["full"]["06_sgd"]["load"]["host_peak_gb"] == 8 * n / 1e9


@pytest.mark.parametrize("stage", NAMES)
def test_the_pages_show_what_is_predicted_today(on_gpu, stage):
    """The same figures as in the committed record; where PyTorch is another version, within 2 %."""
    now, then = on_gpu["full"][stage], lessons.predictions()[stage]
    same = now["versions"]["torch"] == then["versions"]["torch"]
    for phase in ("load", "train"):
        for name in ("device_peak_gb", "device_reserved_gb", "host_peak_gb"):
            if same:
                assert now[phase][name] == then[phase][name]
            else:
                assert now[phase][name] == pytest.approx(then[phase][name], rel=0.02, abs=1e-3)
    assert not same or now["peak_at"] == then["peak_at"] and now["train"]["breakdown_gb"] == then["train"]["breakdown_gb"]


def test_gradients_freed_late_lie_under_the_activations(on_gpu):
    names = NAMES[:4]
    late = simulated(names, "gpu", "full", late_zero_grad=True)
    recorded = {r["stage"]: r for r in json.loads(lessons.LATE.read_text())}
    assert list(recorded) == names
    for name in names:
        more, less = late[name]["train"], on_gpu["full"][name]["train"]
        weights = less["breakdown_gb"]["parameters"]
        # The forward pass has all of them under it; the top, a moment into the backward pass, has none any more.
        assert 0.8 * weights < more["device_peak_gb"] - less["device_peak_gb"] <= weights
        assert more["breakdown_gb"]["gradients"] == weights
        if late[name]["versions"]["torch"] == recorded[name]["versions"]["torch"]:
            assert more == recorded[name]["train"]


def test_autocast_of_the_pretend_gpu_is_pytorchs(on_cpu, on_gpu):
    # Autocast for the pretend device is ours, for the CPU PyTorch's; for this model both have the same lists.
    gpu, cpu = on_gpu["tiny"]["02_mixed_precision"], on_cpu["02_mixed_precision"]
    assert gpu["precision"] == "16-mixed" and cpu["precision"] == "bf16-mixed"
    for label, gb in cpu["train"]["breakdown_gb"].items():
        assert gpu["train"]["breakdown_gb"][label] == pytest.approx(gb, rel=0.005, abs=1e-7), label


def test_what_if():
    names = ("04_batchsize", "08_fsdp")
    small = simulated(names, "gpu", "full", model="vit_b_16", batch_size=8)
    large = simulated(names, "gpu", "full", model="vit_b_16", batch_size=16, micro_batch_size=2, devices=8, image_px=384)
    held, more = ([r[s]["train"]["breakdown_gb"] for s in names] for r in (small, large))
    tokens = (384 // 16) ** 2 + 1, 14 * 14 + 1
    assert more[0]["activations"] == pytest.approx(held[0]["activations"] * 2 * tokens[0] / tokens[1], rel=0.01)
    assert more[1]["inputs"] == pytest.approx(held[1]["inputs"] * (384 / 224) ** 2, rel=0.001)  # 2 images per device either way
    assert more[1]["parameters"] == pytest.approx(held[1]["parameters"] / 2, rel=0.05)  # some are not divided
    assert large["08_fsdp"]["world_size"] == 8 and large["08_fsdp"]["micro_batch_size"] == 2
    assert large["04_batchsize"]["micro_batch_size"] is None


def test_fits_is_searched(on_gpu):
    budget = 0.06
    processes = {"05_grad_accum": 1, "08_fsdp": 4}
    found = workers.run([("fits", "largest_micro_batch", stage, workers.wanted("gpu", "tiny"), budget) for stage in processes])
    jobs = []
    for (stage, n), largest in zip(processes.items(), found):
        assert largest > 4
        sizes = [{"micro_batch_size": k, "batch_size": max(16, 2 * k * n)} for k in (largest, largest + 1)]
        jobs += [("simulation", "predict", stage, workers.wanted("gpu", "tiny", **size)) for size in sizes]
    assert [r["train"]["device_reserved_gb"] <= budget for r in workers.run(jobs)] == [True, False] * 2


def test_fits_tells_the_first_that_does():
    records = predicted("--preset", "tiny", "01", "04", "--fits", 1.05)
    answers = [r["fits"] for r in records.values()]
    assert [a["fits"] for a in answers] == [False, True]
    for a, r in zip(answers, records.values()):
        assert a["needs_gb"] == r["train"]["device_reserved_gb"] + tables.ALLOWANCE_GB
    printed = tables.fitting(list(records.values()))
    assert printed[-1] == "The first that fits: 04_batchsize" and len(printed) == 5
    assert tables.fitting([records["01_baseline"]])[-1] == "None of these fits as it is."


@pytest.mark.parametrize("needed, budget", [
    (lambda n: 5 + n, 3),
    (lambda n: 5 + n, 6),
    (lambda n: 5 + 0.001 * n, 10),
    (lambda n: 5 + 20 * (n // 7), 100),
    (lambda n: max(50, 0.3 * n), 60),
    (lambda n: 1 + n**1.5, 1e6),
])
@pytest.mark.parametrize("guess", [1, 4, 64])
def test_search_finds_the_largest(needed, budget, guess):
    asked = []

    def ask(n):
        asked.append(n)
        return needed(n)

    assert fits.search(ask, budget, guess) == max((n for n in range(1, 20001) if needed(n) <= budget), default=0)
    assert len(asked) == len(set(asked)) < 30


def test_pictures(pictures, on_gpu):
    folder = pictures / "new"
    assert sorted(f.name for f in folder.iterdir()) == sorted([*(f"{run.replace('/', '_')}.png" for run in NAMES + TEXT), "timeline.png", "timeline_11_llm.png", "timelines.json"])
    peaks = {run: record["train"]["device_peak_gb"] for run, record in on_gpu["tiny"].items()}
    together = {"timeline": NAMES, "timeline_11_llm": TEXT}
    condensed = json.loads((folder / "timelines.json").read_text())
    assert [moments["run"] for moments in condensed] == NAMES + TEXT
    for moments in condensed:  # the peak is among them, however few are left
        total = [sum(column) for column in zip(*moments["device"].values())]
        assert len(total) == len(moments["at"]) <= timeline.POINTS + 1
        assert max(total) == pytest.approx(peaks[moments["run"]] * 1e3, abs=0.1)
    for file in folder.glob("*.png"):
        runs = together.get(file.stem) or [run for run in peaks if run.replace("/", "_") == file.stem]
        assert json.loads(Image.open(file).info["Description"]) == {run: peaks[run] for run in runs}


def test_history_ends_where_it_began():
    options = workers.wanted("gpu", "tiny")
    for record, history in workers.run([("simulation", "predict", stage, options, True) for stage in ("05_grad_accum", "10_offload")]):
        total = history["device"].sum(1)
        assert total.max() == pytest.approx(record["train"]["device_peak_gb"], abs=1e-7)
        weights = history["device" if record["stage"] < "10" else "host"][:, CATEGORIES.index("parameters")]
        assert weights.min() == weights.max() > 0
        assert history["device"][-1, CATEGORIES.index("gradients")] == history["device"][-1, CATEGORIES.index("temporaries")] == 0
        order = [phase for phase, before in zip(history["phases"], [None, *history["phases"]]) if phase != before]
        assert order == (4 if record["stage"] < "10" else 1) * ["forward", "backward"] + ["step"]


@pytest.mark.parametrize("run, argv", [("06_sgd", ["06"]), ("10_offload/plain", ["10", "--plain", "--devices", "1"])])
def test_check_measures_and_agrees(capsys, monkeypatch, run, argv):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(SystemExit) as ended:
        predict.main(["--check", "--preset", "tiny", *argv])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.startswith(f"{run} ") and "allocated" in line]
    assert [row[1] for row in rows] == ["load", "train"]
    for _, phase, _, measured, foreseen, error, difference, breakdown in rows:
        # In plain PyTorch the mesh is made while loading, with small tensors that the simulation does not count.
        assert phase == "load" and "plain" in run or measured == foreseen and (error, difference, breakdown) == ("+0.00%", "+0", "same")


def test_check_fails_when_a_prediction_is_wrong(monkeypatch, capsys):
    record = {**simulated(["06_sgd"], "cpu", "tiny")["06_sgd"]}
    wrong = {**record, "train": {**record["train"], "device_peak_gb": record["train"]["device_peak_gb"] * 1.02}}
    monkeypatch.setattr(predict.workers, "run", lambda jobs: [wrong])
    monkeypatch.setattr(predict, "measure", lambda *_: {**record, "device": "here"})
    wanted = [("06_sgd", workers.wanted("cpu", "tiny"))]
    assert not predict.check(predict.parse(["--check", "--preset", "tiny", "06"]), wanted)
    assert "+2.00%" in capsys.readouterr().out
    monkeypatch.setattr(predict, "measure", lambda *_: None)  # the stage failed
    assert not predict.check(predict.parse(["--check", "--preset", "tiny", "06"]), wanted)


@pytest.mark.parametrize("argv, message", [
    (["12_rlhf"], "stage 12_rlhf: there is no such stage"),
    (["02-77"], "stage 02-77: there is no stage 12"),
    (["--model", "vit_xxl"], "--model vit_xxl: there is no such model; choose from vit_tiny"),
    (["--fits", "-1"], "--fits: -1 is not a positive number"),
    (["--fits", "much"], "--fits: much is not a positive number"),
    (["--fits", "nan"], "--fits: nan is not a positive number"),
    (["--batch-size", "0"], "--batch-size: 0 is not a positive whole number"),
    (["--image-px", "230"], "--image-px 230: vit_l_16 cuts pictures into patches of 16 px"),
    (["--check", "--batch-size", "8"], "--check runs the scripts as they are; leave --batch-size out"),
    (["--check", "--image-px", "384"], "--check runs the scripts as they are; leave --image-px out"),
    (["06", "--trust-remote-code"], "--trust-remote-code is about texts, but 06_sgd is about images"),
    (["--model", "vit_tiny", "11"], "--model vit_tiny is about images, but 11_llm/before is about texts"),
    (["--max-length", "64", "--image-px", "32"], "--max-length 64 is about texts, but --image-px 32 is about images; leave one of them out"),
    (["--model", "distilbert_tiny", "--max-length", "513"], "--max-length 513: distilbert_tiny takes 512 tokens at most"),
    (["11", "--one-by-one", "--timeline", "/tmp"], "--timeline draws the scripts of one model; leave --one-by-one"),
    (["--fits", "24", "--on", "cpu"], "--fits asks for a GPU's memory"),
    (["--timeline", "/dev/null/x"], "--timeline /dev/null/x: Not a directory"),
])
def test_bad_input(argv, message):
    with pytest.raises(UserError) as caught:
        predict.parse(argv)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("stage, sizes, message", [
    ("08_fsdp", {"batch_size": 10}, "08_fsdp: a batch of 10 images does not divide by 4 devices"),
    ("08_fsdp", {"devices": 3}, "08_fsdp: a batch of 16 images does not divide by 3 devices"),
    ("05_grad_accum", {"micro_batch_size": 32}, "05_grad_accum: --micro-batch-size 32: a device gets only 16 images of a batch"),
])
def test_sizes_that_do_not_fit_each_other(stage, sizes, message):
    with pytest.raises(UserError) as caught:
        simulation.arguments(stage, stages.load(stage), workers.wanted("gpu", "tiny", **sizes))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_bad_input_ends_in_one_line():
    assert run("-m", "shared.predict", "--fits", "-3", code=2).strip().count("\n") == 0
    with pytest.raises(UserError, match="a batch of 16 images does not divide by 3 devices"):
        predict.main(["08", "--preset", "tiny", "--devices", "3"])
    with pytest.raises(UserError, match="05_grad_accum: --late-zero-grad would wipe out the sum"):
        predict.main(["05", "--preset", "tiny", "--late-zero-grad"])
    with pytest.raises(UserError, match="none of the stages asked for has micro-batches"):
        predict.parse(["04", "--micro-batch-size", "2"])
    with pytest.raises(UserError, match="none of the stages asked for shares the work"):
        predict.parse(["01-07", "--devices", "8"])
    assert predict.parse(["07-08", "--devices", "8"]).devices == 8


@pytest.mark.parametrize("argv", [["01", "--batch-size", "1" + 18 * "0"], ["01", "--model", "vit_tiny", "--image-px", "4000000000"]])
def test_sizes_beyond_counting(argv):
    with pytest.raises(UserError, match="more bytes than can be counted|choose smaller"):
        predict.main([*argv, "--preset", "tiny"])


def test_unsupported_torch(monkeypatch):
    for version, fine in (("2.11.0", True), ("2.15.0+cu132", True), ("2.16.0.dev1", True), ("2.10.1", False), ("3.0.0", False)):
        monkeypatch.setattr(torch, "__version__", version)
        if fine:
            workers.supported_torch()
        else:
            with pytest.raises(UserError, match=f"torch {version} is here; the predictor is tested with torch"):
                workers.supported_torch()


def test_a_model_that_the_stage_cannot_shard():
    script = stages.load("08_fsdp")
    args = SimpleNamespace(stage="08_fsdp", model="a_cnn", world_size=4)
    with pytest.raises(UserError, match="08_fsdp cannot shard a_cnn over 4 devices: .*'encoder'"):
        simulation.explained(script.parallelize, args)(torch.nn.Linear(2, 2), None)


def test_a_killed_simulation_is_said():
    with pytest.raises(UserError, match="a simulation was killed"):
        workers.run([("ending", "_end", 9)])


def test_allocator_rounds_and_splits():
    a = allocator.CachingAllocator()
    one = a.allocate(1)
    assert (one.size, a.reserved) == (512, 2 * MIB)
    a.allocate(MIB)  # beside it, in the same segment
    assert a.reserved == 2 * MIB
    a.allocate(MIB)  # 512 bytes too large for what is left
    assert a.reserved == 4 * MIB
    large = a.allocate(MIB + 1)  # from a segment of 20 MiB
    assert a.reserved == 24 * MIB
    own = a.allocate(19 * MIB)  # more than 10 MiB, and than what is left there: a segment of its own, a multiple of 2 MiB
    assert a.reserved == 44 * MIB
    assert own.size == 20 * MIB  # a rest of 1 MiB or less is not cut off
    a.allocate(19 * MIB - 512)  # just what is left of the first
    assert a.reserved == 44 * MIB
    a.free(large)
    assert a.allocate(MIB + 1) is large and a.reserved == 44 * MIB


def test_allocator_gives_back_what_is_idle():
    a = allocator.CachingAllocator()
    pieces = [a.allocate(5 * MIB) for _ in range(4)]
    assert a.reserved == 20 * MIB
    for piece in pieces[:3]:
        a.free(piece)
    a.empty_cache()
    assert a.reserved == 20 * MIB  # one is in use
    a.free(pieces[3])
    assert [p.size for p in a.pools[0][1]] == [20 * MIB]  # joined again
    a.empty_cache()
    assert a.reserved == 0 and a.peak == 20 * MIB


def test_allocator_loses_nothing():
    rng = random.Random(0)
    a, live = allocator.CachingAllocator(), []
    for _ in range(3000):
        if live and rng.random() < 0.48:
            a.free(live.pop(rng.randrange(len(live))))
        else:
            live.append(a.allocate(int(10 ** rng.uniform(0, 8))))
        idle = [p for pools in a.pools.values() for pool in pools for p in pool]
        assert sum(p.size for p in live + idle) == a.reserved <= a.peak
        assert not any(p.idle for p in live)
    spans = sorted((p.address, p.size) for p in live + idle)
    assert all(x + size <= y for (x, size), (y, _) in zip(spans, spans[1:]))  # nowhere two at once
    for p in live:
        a.free(p)
    a.empty_cache()
    assert a.reserved == 0


def test_allocator_keeps_streams_apart():
    a = allocator.CachingAllocator()
    a.free(a.allocate(15 * MIB))
    a.allocate(15 * MIB, stream=1)
    assert a.reserved == 32 * MIB
    a.allocate(15 * MIB)
    assert a.reserved == 32 * MIB
    a.empty_cache()
    assert a.reserved == 32 * MIB


def test_sharding_uses_streams_of_its_own(on_gpu):
    """Weights are gathered, and gradients reduced, on streams whose idle memory the other streams cannot have."""
    idle = {name: r["train"]["device_reserved_gb"] / r["train"]["device_peak_gb"] for name, r in on_gpu["full"].items()}
    assert all((idle[name] > 1.3) == (name in SHARDED) for name in NAMES), idle
