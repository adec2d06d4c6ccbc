"""Promise: texts are read as they are, tokenized once, and padded batch by batch.

They are split in the same way every time.
"""

import json
from types import SimpleNamespace

import datasets
import pytest
import torch

from shared.common import scripts
from shared.common.errors import UserError
from shared.common.files import data_files, holds_texts
from shared.images.task import TASK as IMAGES
from shared.text import cli, configs, data, reviews, sources
from shared.text.task import TASK as TEXTS


def parsed(*argv):
    script = scripts.get("11_llm/before").path
    return cli.parse(script, ["--preset", "tiny", *map(str, argv)], batch_size=12)


def test_made_up_reviews_are_all_different_and_balanced():
    texts, labels = reviews.reviews(500)
    assert len(set(texts)) == 500 and sum(labels) == 250
    assert (texts, labels) == reviews.reviews(500)
    sets = sources.made_up()
    parts = [set(sets[part]["text"]) for part in sources.PARTS]
    assert [len(part) for part in parts] == [3200, 400, 400]
    assert len(set.union(*parts)) == 4000  # nothing is tested that was trained with


def test_made_up_reviews_mean_what_their_label_says():
    for sentence, good in zip(*reviews.reviews(2000)):
        at, last = max((sentence.rfind(word), word) for word in reviews.GOOD + reviews.BAD)
        clause = sentence[:at].replace(";", ",").split(",")[-1].split(" and ")[-1]
        denied = any(n.split("{}")[0].strip() in clause for n in reviews.NEGATIONS)
        assert good == ((last in reviews.GOOD) != denied), sentence


def test_padding_is_as_long_as_the_longest_needs():
    pad = data.Padding(pad_token_id=7, max_length=512)
    tokens, labels = pad(
        [{"input_ids": [1, 2, 3], "label": 1}, {"input_ids": list(range(9)), "label": 0}]
    )
    assert tokens["input_ids"].shape == (2, 16) and labels.tolist() == [1, 0]
    assert tokens["input_ids"][0].tolist() == [1, 2, 3] + 13 * [7]
    assert tokens["attention_mask"].sum(1).tolist() == [3, 9]
    tokens, _ = data.Padding(7, 9)([{"input_ids": list(range(9)), "label": 0}])
    assert tokens["input_ids"].shape == (1, 9)  # not more than the model takes


def test_tokenized_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = tmp_path / "table.jsonl"
    rows = [{"text": f"text {i}", "label": i % 3} for i in range(40)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = parsed("--data", file)
    sets, tokenizer = data.prepared(args)
    assert [len(sets[part]) for part in sources.PARTS] == [32, 4, 4] and args.num_classes == 3
    assert args.config.id2label == {0: "0", 1: "1", 2: "2"}
    assert args.config.pad_token_id == tokenizer.pad_token_id
    assert "text" not in sets["train"].column_names
    monkeypatch.setattr(sources, "from_file", None)  # would fail if it were read again
    again, _ = data.prepared(parsed("--data", file))
    assert again["train"][:] == sets["train"][:]
    with pytest.raises(TypeError):
        data.prepared(parsed("--data", file, "--max-length", 3))
    file.write_text(file.read_text() + '{"text": "new", "label": 1}\n')
    with pytest.raises(TypeError):
        data.prepared(parsed("--data", file))


def test_max_length_and_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    sets, tokenizer = data.prepared(parsed("--max-length", 6, "--limit", 50))
    assert [len(sets[part]) for part in sources.PARTS] == [50, 50, 50]
    assert {len(ids) for ids in sets["train"]["input_ids"]} == {6}
    ends = {(ids[0], ids[-1]) for ids in sets["train"]["input_ids"]}
    assert ends == {(tokenizer.cls_token_id, tokenizer.sep_token_id)}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def test_aclimdb_folder(tmp_path):
    folders = [f"{part}/{label}" for part in ("train", "test") for label in ("neg", "pos")]
    names = [f"{folder}/{i}.txt" for folder in folders for i in range(10)]
    write(tmp_path, {name: f"review {name}" for name in names})
    write(tmp_path, {"train/unsup/0.txt": "no label", "README": "x", "train/urls_pos.txt": "x"})
    sets = sources.from_folder(tmp_path)
    assert [len(sets[part]) for part in sources.PARTS] == [18, 2, 20]
    assert sets["test"].features["label"].names == ["neg", "pos"]
    for part in ("train", "val", "test"):
        for row in sets[part]:
            assert row["text"].split("/")[1] == ("neg", "pos")[row["label"]]
    split = sources.from_folder(tmp_path / "test")
    assert [len(split[part]) for part in sources.PARTS] == [16, 2, 2]
    (tmp_path / "test" / "new").mkdir()
    (tmp_path / "test" / "new" / "1.txt").write_text("x")
    unequal = "train and test must have the same classes, but new is in one of them only"
    with pytest.raises(UserError, match=unequal):
        sources.from_folder(tmp_path)
    (tmp_path / "test" / "new" / "1.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="1.txt is not UTF-8 text"):
        sources.from_folder(tmp_path)


def test_tables(tmp_path):
    rows = [(f'He said "no, NA", {i}', ("no", "yes", "NA")[i % 3]) for i in range(30)]
    quoted = "".join('"{}",{}\n'.format(t.replace('"', '""'), y) for t, y in rows)
    lines = "".join(json.dumps({"label": y, "text": t}) + "\n" for t, y in rows)
    write(tmp_path, {"train.csv": "text,label\n" + quoted, "test.jsonl": lines})
    args = SimpleNamespace(data=str(tmp_path))
    sets = sources.source(args)[2]()
    assert [len(sets[part]) for part in sources.PARTS] == [27, 3, 30]
    names = sets["train"].features["label"].names
    assert names == ["NA", "no", "yes"]
    assert [(r["text"], names[r["label"]]) for r in sets["test"]] == rows
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(UserError, match="test.csv or test.jsonl is missing"):
        sources.source(args)[2]()


def test_lines_are_what_json_says(tmp_path):
    rows = [{"text": f"one\u2028line {i}", "label": "a²b"[i % 3]} for i in range(30)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert sources.from_file(file)["text"][:] == [row["text"] for row in rows]


def test_only_what_is_read_is_looked_at(tmp_path):
    """A data set in a folder with everything else in it is as quick as one that is alone."""
    names = [f"{label}/{i}.txt" for label in ("a", "b") for i in range(3)]
    others = ("deep/er/and/deeper/1.txt", "a/b/c/1.txt", "README", "a/picture.png")
    write(tmp_path, dict.fromkeys([*names, *others], "x"))
    (tmp_path / "round").symlink_to(tmp_path)
    stamps = sources.source(SimpleNamespace(data=str(tmp_path)))[1]
    assert [path for path, _, _ in stamps] == [str(tmp_path / name) for name in names]
    assert sorted(data_files(tmp_path)) == [tmp_path / name for name in names]
    write(tmp_path, {"train.csv": "x"})
    assert tmp_path / "train.csv" in data_files(tmp_path)
    assert data_files(tmp_path / "README") == [tmp_path / "README"] and not data_files("digits")
    write(tmp_path / "pictures", {"train/cat/1.jpg": "x", "train/cat/x/2.jpg": "x", "notes": "x"})
    pictures = {file.name for file in data_files(tmp_path / "pictures")}
    assert pictures == {"cat", "1.jpg", "x", "2.jpg"}
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "pictures" / "folder.csv").mkdir()
    assert not holds_texts(tmp_path / "pictures") and not holds_texts("x" * 5000)
    assert not holds_texts("/proc") and not holds_texts("") and not holds_texts("a\0b")


def test_folders_of_pictures_and_of_texts_are_told_apart(tmp_path):
    pictures = {"pictures/cat/1.jpg": "x", "pictures/README.txt": "x"}
    texts = ("texts/train/pos/1.txt", "split/pos/1.txt", "table/train.csv")
    write(tmp_path, {**pictures, **dict.fromkeys(texts, "x")})
    about_texts = ["imdb", *(str(tmp_path / name) for name in ("texts", "split", "table"))]
    about_images = ["cifar10", *(str(tmp_path / name) for name in ("pictures", "nowhere"))]
    for what in about_texts + about_images:
        assert TEXTS.suits(what) == (what in about_texts)
        assert IMAGES.suits(what) == (what in about_images)
    assert TEXTS.suits("fake") and IMAGES.suits("fake")


def test_classes_are_in_their_natural_order(tmp_path):
    file = tmp_path / "stars.csv"
    file.write_text("text,label\n" + "".join(f"text {i},{i % 10 + 1}\n" for i in range(40)))
    found = sources.from_file(file).features["label"].names
    assert found == [str(i) for i in range(1, 11)]


def test_imdb_is_split_as_it_says(monkeypatch):
    """The real code on a small set with the hub's layout."""
    label = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    columns = {"text": [f"text {i}" for i in range(20)], "label": [0, 1] * 10}
    part = datasets.Dataset.from_dict(columns, features=features)
    parts = dict.fromkeys(("train", "test", "unsupervised"), part)
    monkeypatch.setattr(datasets, "load_dataset", lambda name: parts)
    sets = sources.imdb()
    assert [len(sets[name]) for name in sources.PARTS] == [18, 2, 20]
    assert not set(sets["train"]["text"]) & set(sets["val"]["text"])


def test_processes_side_by_side_see_the_batches_of_one(monkeypatch):
    args = parsed("--limit", 100)
    args.shares = 4
    seen = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    for rank in range(4):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        seen.append([labels for _, labels in data.loaders(args)[0]])
    monkeypatch.undo()
    args.shares = 1
    for k, (_, labels) in enumerate(data.loaders(args)[0]):
        together = torch.stack([seen[rank][k] for rank in range(4)], 1).flatten().tolist()
        assert together[: len(labels)] == labels.tolist()


def test_fake_texts_have_padding_to_hide():
    args = parsed("--data", "fake", "--max-length", 32)
    tokens, labels = next(iter(data.loaders(args)[0]))
    assert tokens["input_ids"].shape == (12, 32)
    assert tokens["attention_mask"].sum(1).tolist() == 12 * [31]
    assert int(tokens["input_ids"].max()) < configs.TINY_OPTIONS["vocab_size"]
    assert args.dataset == "fake"
