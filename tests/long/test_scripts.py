"""Promise: a docstring says what a script is and where it comes from, and records tell scripts."""

import json

import pytest
from conftest import NAMES, PLAIN, TEXT, read_json

from shared.cli import Parser, UserError
from shared.images.cli import TASK as IMAGES
from shared.records import fields, scripts, stored, views


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A folder with scripts of three stages and a side road."""
    files = {
        "01_first/train.py": "Stage 01, first: a start.",
        "01_first/plain.py": "Stage 01, first, in plain PyTorch: a start.",
        "02_second/train.py": "Stage 02, second: a step: with a colon.",
        "02_second/other.py": "Side road from 02_second/train.py, Other: another step.",
        "02_second/further.py": "Side road from 02_second/other.py, Further: a step on.",
        "02_second/tool.py": "Not a script, but a tool.",
        "04_fourth/train.py": "Stage 04, fourth: without a neighbour.",
    }
    for name, line in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'"""{line}"""\n\nBATCH_SIZE = 1\n')
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    scripts.every.cache_clear()
    yield tmp_path
    scripts.every.cache_clear()


def test_what_a_script_is_stands_in_its_first_line(house):
    found = scripts.every()
    assert "02_second/tool" not in found and len(found) == 6
    assert found["02_second/train"].title == "second"
    assert found["02_second/train"].idea == "a step: with a colon"
    assert found["02_second/other"].side_road and not found["02_second/train"].side_road
    assert scripts.side_roads() == ["02_second/further", "02_second/other"]
    assert found["02_second/other"].load().BATCH_SIZE == 1


def test_every_script_knows_its_parent(house):
    parents = {name: script.parent for name, script in scripts.every().items()}
    assert parents == {
        "01_first/plain": None,
        "01_first/train": None,
        "02_second/further": "02_second/other",
        "02_second/other": "02_second/train",
        "02_second/train": "01_first/train",
        "04_fourth/train": None,
    }


def test_further_scripts_in_a_folder_are_not_its_stage(house):
    assert scripts.stages() == ["01_first/train", "02_second/train", "04_fourth/train"]
    assert scripts.select(["02"], "stage") == ["02_second/train"]
    assert scripts.select(["02_second/other", "01-02"], "stage") == [
        "01_first/train",
        "02_second/train",
        "02_second/other",
    ]
    beside = ["02_second/train", "02_second/further", "02_second/other"]
    assert scripts.with_side_roads(["02_second/train"]) == beside
    (house / "04_fourth" / "apart.py").write_text(
        '"""Side road from 01_first/train.py, apart: of another folder."""'
    )
    scripts.every.cache_clear()
    beside = ["01_first/train", "04_fourth/train", "04_fourth/apart"]
    assert scripts.with_side_roads(["04_fourth/train"]) == beside


def test_the_scripts_of_this_repository():
    assert len(NAMES) == len(PLAIN) == 10 and TEXT == ["11_llm/before", "11_llm/train"]
    for chain in (NAMES, PLAIN):
        assert [scripts.get(name).parent for name in chain] == [None, *chain[:-1]]
    assert [scripts.get(name).parent for name in TEXT] == [None, "11_llm/before"]
    assert set(scripts.every()) >= {*NAMES, *PLAIN, *TEXT}
    with pytest.raises(UserError, match="there is no script 06_sgd; 06_sgd/train is the name"):
        scripts.get("06_sgd")


def test_select():
    four = ["01_baseline/train", "02_mixed_precision/train", "03_bf16/train", "08_fsdp/train"]
    for words in (
        ["01-03,08"],
        ["08", "01,02-03"],
        ["--stages", "01-03,08"],
        ["08", "--stages=01-3"],
    ):
        parser = Parser()  # as the ladder and the predictor have it
        scripts.add_stages(parser)
        assert scripts.selected(parser.parse_args(words)) == four
    assert scripts.selected(parser.parse_args([])) is None
    assert scripts.select(["03", "01-02", "08_fsdp/"], "stage") == four
    assert scripts.select(["11"], "stage") == TEXT
    assert scripts.select(["06_sgd/plain.py"], "stage") == ["06_sgd/plain"]
    for wrong in ("00", "3-2", "01-99"):
        with pytest.raises(UserError, match=f"^stage {wrong}: .* there are 01 to 11$"):
            scripts.select([wrong], "stage")
    for wrong in ("", "1-", "a", "1,,2", "06_sgd/kahan"):
        with pytest.raises(UserError, match="there is no such script; write numbers and ranges"):
            scripts.select([wrong], "stage")


def test_what_is_no_record_is_left_out(tmp_path):
    record = {"script": "06_sgd/train", "versions": {}, "train": {"device_peak_gb": 1.0}}
    lines = [json.dumps(line) for line in (record, 7, {"script": "06_sgd/plain"}, record)]
    (tmp_path / "mixed.jsonl").write_text("\n".join([*lines, lines[0][:20]]))
    assert views.read(tmp_path / "mixed.jsonl") == ([record, record], 3)


def test_a_record_has_all_fields_and_no_other():
    its = fields.FIELDS
    named = {x for part in its if part not in ("phase", "cost", "bound", "way") for x in its[part]}
    for record in [r for file in (stored.PREDICTED, stored.TEXT) for r in read_json(file)]:
        assert record.keys() <= named
        assert not record.keys() & its["images" if "max_length" in record else "texts"].keys()
        assert record["train"].keys() == record["load"].keys() == its["phase"].keys()
        assert record["cost"].keys() == its["cost"].keys()
        assert record["bound"].keys() == its["bound"].keys()
    unknown = fields.unknown(IMAGES)
    assert unknown["test_accuracy"] is unknown["images_per_second"] is None
    assert not {"max_length", "technique", "test_perplexity"} & unknown.keys()
