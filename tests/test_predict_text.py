"""Promise: a language model is predicted to the byte, and every factor has its technique."""

import pytest
import torch
import transformers
from conftest import TEXT
from simulations import near

from shared.lessons import stored
from shared.predict.command import main
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import one_by_one, predict
from shared.text.configs import KNOWN


@pytest.mark.parametrize("run", TEXT)
def test_equals_what_is_measured_to_the_byte(ladder, run):
    measured = ladder[2][run]
    options = Wanted("cpu", "tiny", input_shapes=measured["input_shapes"])
    (record,) = run_jobs([(predict, run, options)])
    assert (
        len({tuple(shape) for shape in measured["input_shapes"]}) > 1
    )  # batches of unequal length
    for phase in ("load", "train"):
        assert record[phase] == measured[phase]
    assert set(measured) - set(record) == {"fingerprint", "ladder"}


@pytest.fixture(scope="module")
def steps():
    return main(["11", "--preset", "full", "--one-by-one"])


def test_every_technique_saves_what_it_is_for(steps):
    device, host, load_host = (
        [r[phase][name] for r in steps]
        for phase, name in (
            ("train", "device_peak_gb"),
            ("train", "host_peak_gb"),
            ("load", "host_peak_gb"),
        )
    )
    bf16, micro, load, shard, checkpointing, offload = range(1, 7)
    for n in (bf16, micro, shard, checkpointing, offload):
        assert device[n] < 0.9 * device[n - 1]
    assert device[load] == device[load - 1] and load_host[load] < 0.01 * load_host[load - 1]
    held = [r["train"]["breakdown_gb"] for r in steps]
    # Blocks are a little larger than tensors, which differs between the two types.
    assert held[bf16]["parameters"] == pytest.approx(held[0]["parameters"] / 2, rel=0.03)
    assert held[micro]["activations"] < held[bf16]["activations"] / 3
    assert held[shard]["optimizer states"] == pytest.approx(
        held[load]["optimizer states"] / 4, rel=0.05
    )
    assert "recomputed" in held[checkpointing] and "recomputed" not in held[shard]
    assert not {"parameters", "gradients", "optimizer states"} & set(held[offload])
    assert host[offload] > 100 * host[checkpointing]


def test_the_way_starts_and_ends_at_the_scripts(steps):
    jobs = [(predict, run, Wanted("gpu", "full")) for run in TEXT]
    for script, step in zip(run_jobs(jobs), (steps[0], steps[-1])):
        for key in (
            "script",
            "load",
            "train",
            "world_size",
            "batch_size",
            "micro_batch_size",
            "precision",
        ):
            assert script[key] == step[key]
    assert {r["batch_size"] for r in steps} == {12}


def test_the_page_shows_what_is_predicted_today(steps):
    recorded = [
        r
        for r in stored.text_records()["distilbert-base-uncased"]
        if r["technique"] or r["script"] == "11_llm/before"
    ]
    same = (
        steps[0]["versions"]["torch"] == recorded[0]["versions"]["torch"]
        and steps[0]["versions"]["transformers"] == recorded[0]["versions"]["transformers"]
    )
    for now, then in zip(steps, recorded, strict=True):
        assert now["technique"] == then["technique"]
        for name in ("device_peak_gb", "device_reserved_gb", "host_peak_gb"):
            assert now["train"][name] == near(then["train"][name], same)


def test_steps_on_one_device_are_ordinary_trainings():
    """They run without processes or shards, and need what is predicted, to the byte."""
    way, steps = one_by_one(TEXT[1]), (2, 3, 4)
    firsts = [way.techniques(1)[:n] for n in steps]
    wanted = [Wanted("cpu", "tiny", max_length=32, devices=1, techniques=f) for f in firsts]
    predicted = run_jobs([(predict, TEXT[1], w) for w in wanted])
    assert [r["technique"] for r in predicted] == [*way.techniques(1)[1:]]
    measured, kinds = [], []
    for chosen in firsts:
        script = way.script(chosen)
        script.build = noting_kinds(script.build, kinds)
        argv = ["--preset", "tiny", "--data", "fake", "--max-length", "32", "--max-steps", "3"]
        measured.append(script.main(argv))
        assert not torch.distributed.is_initialized()
    assert kinds == [{(torch.nn.Parameter, torch.bfloat16)}] * 3
    for real, r in zip(measured, predicted, strict=True):
        assert (real["load"], real["train"]) == (r["load"], r["train"])
        assert real["world_size"] == r["world_size"] == 1
    micro, load, checkpointing = measured
    assert load["load"]["device_peak_gb"] < 0.3 * micro["load"]["device_peak_gb"]
    assert checkpointing["last_loss"] == load["last_loss"]


def noting_kinds(build, kinds):
    """Returns a script's build() that notes the types of the parameters."""

    def noting(fabric, args):
        model, optimizer = build(fabric, args)
        kinds.append({(type(p), p.dtype) for p in model.parameters()})
        return model, optimizer

    return noting


def test_on_one_gpu_the_way_is_the_same_up_to_sharding():
    several, alone = stored.text_records(), stored.one_gpu_records()
    assert list(alone) == list(several)
    for model, records in alone.items():
        assert {r["world_size"] for r in records} == {1} and len(records) == 5
        for r, other in zip(records[:4], several[model]):
            for key in ("technique", "load", "train", "peak_at"):
                assert r[key] == other[key]
        last = records[4]
        assert last["technique"] == "checkpoint every block"
        step = last["peak_at"]["train"]["phase"] == "step"  # 10 bytes per weight of 2 bytes
        assert step == ("bigbird" not in model)
        by_weights = last["train"]["device_peak_gb"] / last["train"]["breakdown_gb"]["parameters"]
        assert by_weights == pytest.approx(5, rel=0.03) or not step
        assert all("gathered" not in r["train"]["breakdown_gb"] for r in records)


def test_the_page_shows_what_is_predicted_today_on_one_gpu():
    (*_, then) = stored.one_gpu_records()["distilbert-base-uncased"]
    alone = one_by_one(TEXT[1]).techniques(1)
    (now,) = run_jobs([(predict, TEXT[1], Wanted("gpu", "full", devices=1, techniques=alone))])
    for name in ("device_peak_gb", "device_reserved_gb", "host_peak_gb"):
        same = now["versions"] == then["versions"]
        assert now["train"][name] == near(then["train"][name], same)


def test_factors_of_the_published_models():
    records = stored.text_records()
    assert len(records) == 7 and list(records) == list(KNOWN)
    for model, least in {"distilbert-base-uncased": 3, "google-bert/bert-large-uncased": 5}.items():
        for world_size, factor in ((4, least), (1, least)):  # on one GPU too
            before = records[model][0]
            after = [
                r
                for r in records[model]
                if r["script"] == "11_llm/train" and r["world_size"] == world_size
            ][-1]
            assert after["batch_size"] == before["batch_size"] == 12
            for peak in ("device_peak_gb", "device_reserved_gb"):
                assert before["train"][peak] / after["train"][peak] >= factor


def activations(device, **options):
    jobs = [
        (predict, "11_llm/before", Wanted(device, "full", max_length=n, **options))
        for n in (256, 512)
    ]
    return [r["train"]["breakdown_gb"]["activations"] for r in run_jobs(jobs)]


@pytest.mark.parametrize("family", ["distilbert", "qwen3"])
def test_attention_on_a_gpu_is_not_quadratic(tmp_path, family):
    """Twice the tokens take twice the activations (and a mask for all heads)."""
    small = {
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "intermediate_size": 512,
        "vocab_size": 1000,
    }
    config = {
        "distilbert": transformers.DistilBertConfig(
            dim=256, n_layers=2, n_heads=16, hidden_dim=512, vocab_size=1000, attention_dropout=0.1
        ),
        "qwen3": transformers.Qwen3Config(
            **small,
            num_key_value_heads=4,
            head_dim=16,
            attention_dropout=0.1,
            pad_token_id=0,
            max_position_embeddings=512,
        ),
    }[family]
    config.save_pretrained(tmp_path)
    gpu, cpu = (activations(device, model=str(tmp_path)) for device in ("gpu", "cpu"))
    assert (
        gpu[1] / gpu[0] < 2.4 and cpu[1] / cpu[0] > 2.8
    )  # a CPU has no kernel for it that knows dropout
