"""Promise: 08_fsdp/own_script.py trains, saves, and resumes with the same losses."""

import shutil

import pytest
import torch
import torch.nn.functional as F
from helpers.own_recipe import UPDATES, load, write_weights
from helpers.recipe_runs import trained
from torch.utils.data import DistributedSampler


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three epochs on two processes: its folder, losses and norms."""
    folder = tmp_path_factory.mktemp("whole")
    write_weights(folder)
    return folder, *trained(folder, 2, 3)


def test_it_trains_with_the_norm_of_the_whole_model(whole):
    folder, losses, norms = whole
    assert len(losses) == len(norms) == 3 * UPDATES and sum(losses[-3:]) < sum(losses[:3])
    script = load()
    model, data = script.Model(), script.make_examples()
    model.load_state_dict(torch.load(folder / "weights.pt"))
    batch = [*DistributedSampler(data, 1, 0)][: script.BATCH_SIZE]
    loss = F.cross_entropy(model(data[batch][0]), data[batch][1])
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    # bf16 has 8 significant bits. The norm of a half of the shards would be a third too low.
    assert [losses[0], norms[0]] == pytest.approx([loss.item(), norm.item()], rel=0.02)


def test_killed_it_resumes_with_the_same_losses(whole, tmp_path):
    _, losses, norms = whole
    write_weights(tmp_path)
    before = trained(tmp_path, 2, 3, 3, code=1)  # killed in the last update of the third epoch
    assert before[0] == losses[: len(before[0])] and len(before[0]) >= 2 * UPDATES
    (tmp_path / "checkpoints" / "0003").mkdir()  # unfinished: it has no .metadata
    again = trained(tmp_path, 2, 3)
    assert again == [losses[2 * UPDATES :], norms[2 * UPDATES :]]


@pytest.mark.parametrize("n", [1, 3])
def test_it_resumes_on_another_number_of_processes(whole, n, tmp_path):
    folder, *all_updates = whole
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "checkpoints" / "0003")
    rest = trained(tmp_path, n, 3)
    for values, expected in zip(rest, all_updates):
        assert values == pytest.approx(expected[2 * UPDATES :], rel=0.02)
