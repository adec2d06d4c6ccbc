"""Promise: every stage sees the same examples in the same order, on any number of processes.

Test examples are not trained on, and a user's own pictures and tables work.
"""

import json
from types import SimpleNamespace
from unittest import mock

import pandas
import pytest
import torch
from conftest import paint, run
from helpers.sample_files import textures
from PIL import Image
from sklearn.datasets import load_digits
from torchmetrics.classification import MulticlassAccuracy
from torchvision.transforms import v2

from shared.images import data as pictures
from shared.images.data import NORMALIZE, Pictures
from shared.lab.records import scripts
from shared.metrics import Accuracy, Evaluator
from shared.run import loading
from shared.text import cli, models
from shared.text import data as texts


def of_pictures(source, **more):
    sizes = {"image_px": 32, "batch_size": 16, "epochs": 2, "max_steps": None}
    where = {"data": str(source), "accelerator": "cpu", "devices": 1, "seed": 1}
    where |= {"shares": 1, "world_size": 1}
    return SimpleNamespace(**{**sizes, **where, **more})


def of_texts(*options, **more):
    script = scripts.get("11_llm/before").path
    args = cli.parse(script, ["--preset", "tiny", *map(str, options)], 12)
    return SimpleNamespace(**{**vars(args), **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return textures(tmp_path_factory.mktemp("pictures") / "textures", 44)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A .jsonl file of 41 texts of three classes and unequal length, with a .csv copy beside it."""
    file = tmp_path_factory.mktemp("texts") / "rows.jsonl"
    rows = [{"text": f'no "{i}",' + i % 9 * " word", "label": "abc"[i % 3]} for i in range(41)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pandas.DataFrame(rows).to_csv(file.with_suffix(".csv"), index=False)
    return file


def read(kind, args, epochs=2):
    """Return all batches of some epochs, each a list of (example as bytes, label)."""
    train = kind.loaders(args).train
    found = []
    for epoch in range(epochs):
        train.sampler.set_epoch(epoch)
        torch.rand(1)  # the order must not depend on it
        for inputs, labels in train:
            if kind is texts:
                cut = zip(inputs["input_ids"], inputs["attention_mask"].bool())
                inputs = [ids[mask] for ids, mask in cut]
            keys = [torch.as_tensor(x).numpy().tobytes() for x in inputs]
            found.append(list(zip(keys, labels.tolist())))
    return found


@pytest.mark.parametrize("what", ["digits", "cropped pictures", "texts"])
def test_four_processes_see_the_batches_of_one(what, folder, table, monkeypatch):
    kind = texts if what == "texts" else pictures

    def args(**more):
        if what == "texts":
            return of_texts("--data", table, **more)
        return of_pictures("digits" if what == "digits" else folder, **more)

    one = read(kind, args())
    half, size = len(one) // 2, 16 if kind is pictures else 12
    assert [len(batch) for batch in one[: half - 1]] == [size] * (half - 1)
    assert 0 < len(one[half - 1]) < size  # the last one is smaller; nothing is left out
    labels = [sorted(y for batch in part for _, y in batch) for part in (one[:half], one[half:])]
    assert labels[0] == labels[1] and one[:half] != one[half:]  # the same, in another order
    assert read(kind, args()) == one != read(kind, args(seed=2))
    # The two workers of each process persist over both epochs.
    monkeypatch.setattr(loading.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    shares = []
    for rank in range(4):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append(read(kind, args(shares=4, world_size=4)))
    for k, batch in enumerate(one):
        together = [example for four in zip(*(share[k] for share in shares)) for example in four]
        # The last batch is filled up with examples from its epoch's beginning.
        assert together[: len(batch)] == batch and len(together) % 4 == 0
        assert set(together[len(batch) :]) <= set(one[k // half * half])


def test_what_is_tested_was_not_trained_with(folder, table):
    parts = [set(map(bytes, part.tensors[0].numpy())) for part in pictures.digits(32)]
    assert [len(part) for part in parts] == [1300, 137, 360] and len(set.union(*parts)) == 1797
    raw, order = load_digits(), torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    labels = torch.cat([part.tensors[1] for part in pictures.digits(32)])
    assert torch.equal(labels, torch.from_numpy(raw.target).long()[order])
    args = of_pictures(folder)
    sets, classes = pictures.image_sets(args)
    parts = [{s.source.samples[i][0] for i in s.indices} for s in sets]
    assert [len(part) for part in parts] == [35, 5, 4] and len(set.union(*parts)) == 44
    assert classes == ["dark", "light"]
    assert [s.seed for s in sets] == [1, None, None]  # only training pictures are cropped
    own, csv = texts.read(str(table)), texts.read(str(table.with_suffix(".csv")))
    assert [csv[part][:] for part in texts.PARTS] == [own[part][:] for part in texts.PARTS]
    for made, sizes in ((texts.read("reviews"), [3200, 400, 400]), (own, [33, 4, 4])):
        parts = [set(made[part]["text"]) for part in texts.PARTS]
        assert [len(part) for part in parts] == sizes and len(set.union(*parts)) == sum(sizes)


@pytest.mark.parametrize("px", [32, 56, 224])
def test_a_picture_is_what_torchvision_makes_of_it(px, folder):
    edge, paths = round(px * 8 / 7), sorted(folder.glob("*/*.png"))[:3]
    convert = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), NORMALIZE]
    transform = v2.Compose([v2.Resize((edge, edge)), v2.CenterCrop(px), *convert])
    found = Pictures([(pictures.load(path), 7) for path in paths], range(3), px)
    for (picture, label), path in zip(found, paths):
        assert label == 7 and torch.equal(picture, transform(Image.open(path)))


def test_padding_is_as_long_as_the_longest_needs_and_is_hidden():
    examples = [{"input_ids": list(range(n)), "label": n % 2} for n in (3, 9)]
    tokens, labels = texts.padded(7, 8, examples)
    assert tokens["input_ids"].shape == (2, 16) and labels.tolist() == [1, 1]
    assert tokens["input_ids"][0].tolist() == [0, 1, 2] + 13 * [7]
    assert tokens["attention_mask"].tolist() == [[1] * n + [0] * (16 - n) for n in (3, 9)]
    assert texts.padded(7, 1, examples[1:])[0]["input_ids"].shape == (1, 9)


def test_texts_are_tokenized_once(table, monkeypatch):
    args = of_texts("--data", table)
    sets, classes, tokenizer = texts.prepared(args)
    assert classes == ["a", "b", "c"]
    config = models.for_data(args.config, classes, tokenizer)
    assert config.id2label == {0: "a", 1: "b", 2: "c"} and config.num_labels == 3
    assert config.pad_token_id == tokenizer.pad_token_id
    monkeypatch.setattr(texts, "read", None)  # would fail if it were read again
    assert texts.prepared(of_texts("--data", table))[0]["train"][:] == sets["train"][:]
    for other in (["--data", table, "--max-length", 3], ["--data", table, "--limit", 12]):
        with pytest.raises(TypeError):
            texts.prepared(of_texts(*other))
    table.write_text(table.read_text() + '{"text": "new", "label": "a"}\n')
    with pytest.raises(TypeError):
        texts.prepared(of_texts("--data", table))


def test_the_tiny_models_vocabulary_is_the_same_in_every_process():
    program = """
from shared.text.reviews import reviews
from shared.text.tokenizer import new_tokenizer
print(sorted(new_tokenizer(reviews(3200)[0], 8192).get_vocab().items()))
"""
    first, second = (run("-c", program) for _ in range(2))
    assert "##less" in first and first == second


def test_files_are_made_once_and_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: tmp_path / "hub")

    def fails(part):
        part.write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError):
        loading.made_once("new.txt", fails)
    assert not (tmp_path / "memory-ladder" / "new.txt").exists()
    path = loading.made_once("new.txt", lambda part: part.write_text("whole"))
    assert path.read_text() == "whole" and loading.made_once("new.txt", fails) == path


def test_fake_data_has_the_right_shape():
    images, labels = next(iter(pictures.loaders(of_pictures("fake")).train))
    assert images.shape == (16, 3, 32, 32) and images.dtype == torch.float32
    assert labels.dtype == torch.int64 and 0 <= labels.min() and labels.max() < 10
    args = of_texts("--data", "fake", "--max-length", 32)
    tokens, labels = next(iter(texts.loaders(args).train))
    assert tokens["input_ids"].shape == (12, 32) and set(labels.tolist()) <= {0, 1}
    assert tokens["attention_mask"].sum(1).tolist() == 12 * [31]  # there is padding to hide
    assert tokens["input_ids"].max() < args.config.vocab_size


def test_accuracy_is_that_of_torchmetrics():
    ours, theirs = Accuracy(), MulticlassAccuracy(num_classes=10, average="micro")
    generator = torch.Generator().manual_seed(0)
    for n in (64, 64, 7):
        logits = torch.randint(5, (n, 10), generator=generator).float()  # ties for the largest
        labels = torch.randint(10, (n,), generator=generator)
        ours.update(None, logits, labels)
        theirs.update(logits, labels)
        assert ours.compute() == theirs.compute() and 0 < ours.compute() < 1


def test_evaluation_has_no_dropout_and_no_gradients():
    seen = []

    class Task:
        new_metric = staticmethod(lambda: mock.MagicMock())

        @staticmethod
        def outputs(model, inputs, labels):
            seen.append((model.training, torch.is_grad_enabled()))
            return None, inputs

    model = torch.nn.Dropout()
    args = SimpleNamespace(task=Task, max_steps=None, shares=1, world_size=1)
    batches = torch.utils.data.DataLoader([(torch.ones(2), 0)], batch_size=1)
    Evaluator(args, torch.device("cpu")).value(model, batches)
    wrong = f"Evaluator: (training mode, gradients) are {seen[0]} while a model is evaluated"
    assert seen == [(False, False)], wrong
    assert model.training, "Evaluator: the model is not in training mode again after it"


def test_each_example_counts_once_on_four_processes(tmp_path):
    """18 pictures, one mislabeled; in the last batch, two processes have only repeated pictures."""
    for part, n in (("train", 20), ("test", 9)):
        for name in ("red", "blue"):
            paint(tmp_path / "data" / part / name, n, name)
    Image.new("RGB", (40, 30), "blue").save(tmp_path / "data" / "test" / "red" / "8.png")
    record, tiny = tmp_path / "record.jsonl", ("--preset", "tiny", "--data", tmp_path / "data")
    run("tests/helpers/forks.py", 4, "08_fsdp/train.py", *tiny, "--record", record)
    assert json.loads(record.read_text())["test_accuracy"] == pytest.approx(17 / 18)
