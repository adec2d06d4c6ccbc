"""Promise: pretrained weights are used as published, or one line says why they cannot be."""

from urllib.error import URLError

import pytest
import torch
import torchvision

from shared.common import scripts
from shared.common.errors import UserError
from shared.images import cli, models

BASELINE = scripts.get("01_baseline/train")
B_16 = ["--preset", "tiny", "--model", "vit_b_16", "--data", "fake"]


@pytest.fixture
def not_built(monkeypatch):
    """Saves the time that it takes to build the model, where what fails fails before it is used."""
    monkeypatch.setattr(models, "vit", lambda args: torch.nn.Linear(1, 1))


def test_weights_without_network(monkeypatch, tmp_path, not_built):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def offline(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(UserError, match="could not be downloaded .*--no-pretrained"):
        BASELINE.load().main(B_16)


def published():
    """Returns torchvision's description of a model's ImageNet weights."""
    return torchvision.models.get_model_weights("vit_b_16").DEFAULT


def use_address(monkeypatch, address):
    """Says that these weights are published elsewhere."""
    monkeypatch.setattr(type(published()), "url", property(lambda self: address))


@pytest.fixture
def file(monkeypatch, tmp_path):
    """The file of these weights, not there yet, where torch.hub keeps its downloads."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder / published().url.rsplit("/", 1)[1]


def test_damaged_weights_on_disk(file, not_built):
    file.write_bytes(b"torn")
    with pytest.raises(UserError, match="is damaged .*delete it"):
        BASELINE.load().main(B_16)


def test_damaged_weights_in_the_download(monkeypatch, file, web, not_built):
    (web[0] / "vit_b_16-c867db91.pth").write_bytes(b"torn")
    use_address(monkeypatch, f"{web[1]}/vit_b_16-c867db91.pth")
    with pytest.raises(UserError, match="the download of .* was damaged"):
        BASELINE.load().main(B_16)


def test_pretrained_weights_get_a_fresh_head(monkeypatch, file):
    """The real loading code, on a file with the layout of torchvision's and its own checksum."""
    torch.manual_seed(1)
    imagenet = torchvision.models.vit_b_16().state_dict()
    torch.save(imagenet, file)
    name = f"vit_b_16-{models._sha256(file)[:8]}.pth"
    file.rename(file.with_name(name))
    use_address(monkeypatch, f"http://127.0.0.1:9/{name}")
    args = cli.parse(BASELINE.path, B_16, batch_size=64)
    args.num_classes = 10
    state = torch.load(models.checkpoint(args), weights_only=True)
    assert state["heads.head.weight"].shape == (10, 768)
    assert torch.equal(state["conv_proj.weight"], imagenet["conv_proj.weight"])
    with torch.device("meta"):
        models.vit(args).load_state_dict(state, assign=True)


def test_unwritable_cache(monkeypatch):
    monkeypatch.setenv("TORCH_HOME", "/proc/nowhere")
    with pytest.raises(UserError, match="set TORCH_HOME"):
        BASELINE.load().main(["--preset", "tiny"])
