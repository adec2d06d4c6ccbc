"""Promise: the checker accepts right stages, rejects wrong ones, and names the reason."""

import pytest

from shared.lab.grading import check
from shared.lab.records import scripts
from shared.run.errors import UserError

# Stage and file, replacements in the repository's own, and a part of the output; "" if it is right.
ATTEMPTS = """
02_mixed_precision/train | cross_entropy(logits, => nll_loss(logits.log_softmax(1), |
02_mixed_precision/train | optimizer.zero_grad() => pass | gradients 1.8 MB, 1.8 MB more
02_mixed_precision/train | 16-mixed => bf16-true | in bf16-true instead of 2.3026 to 2.156
02_mixed_precision/train | optimizer.zero_grad() => pass; \
F.cross => optimizer.zero_grad() or F.cross \
| or only after the forward pass?
03_bf16/train | logits => scores; optimizer => opt; # (batch, classes) => # a row per image |
03_bf16/train | bf16-true => bf16-mixed | optimizer states 3.7 MB, 1.8 MB more, 2.0 times
03_bf16/train | bf16-true => 32-true | activations 102.8 MB, 51.3 MB more, 2.0 times
03_bf16/plain | optimizer.zero_grad() => pass | gradients 0.9 MB, 0.8 MB more
04_batchsize/train | logits => scores; BATCH_SIZE = 16 => BATCH_SIZE: int = int(64 / 4) |
04_batchsize/train | BATCH_SIZE = 16 => BATCH_SIZE = 64 | wrong: 0 lines changed, 1 in 04_batchsize/
04_batchsize/train | BATCH_SIZE = 16 => BATCH_SIZE = 32 | but BATCH_SIZE 32 instead of 16
05_grad_accum/train | logits => scores; len(x) / len(images) => (len(y) / len(labels)); \
zip(images.split\
(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)) => ((images[i : i + MICRO_BATCH_SIZE], \
labels[i : i + MICRO_BATCH_SIZE]) for i in range(0, len(images), MICRO_BATCH_SIZE)) |
05_grad_accum/plain | * len(x) / len(images) => | is each loss, in fp32, its share of the batch's
05_grad_accum/train | meter.add => optimizer.step() or meter.add | and is there one step per batch?
05_grad_accum/train | backward(loss => backward(loss, retain_graph=True | activations 6.7 MB, 3.5 MB
05_grad_accum/train | * len(x) / len(images) => / 4 | with a smaller last micro-batch, losses 2.8
06_sgd/train | SGD(model.parameters() => SGD([p.detach().clone() for p in model.parameters()] \
| does the optimizer hold the model's own parameters?
08_fsdp/train | [*model.encoder.layers, model] => [model] | is fully_shard called for each block
06_sgd/train | T_max=loaders => loaders; len(x) / len(images) => (len(y) / BATCH_SIZE) |
06_sgd/train | SGD( => Adam( | optimizer states 1.8 MB, new: another optimizer, such as Adam
06_sgd/train | scheduler.step() => pass | learning rate, schedule, zero_grad(), or batch size?
06_sgd/train | optimizer.zero_grad() => pass | learning rate, schedule, zero_grad(), or batch size?
06_sgd/train | def build => def make | wrong: functions and constants: no build
07_init_module/train | , mmap=True => | wrong: loading peak 2.8 MB
"""
OWN = [f"{n} | = => = |" for n in (*scripts.ladder()[1:6:2], *scripts.plain()[2:6:2])]


@pytest.mark.parametrize("attempt", [*OWN, *ATTEMPTS.strip().splitlines()])
def test_an_attempt(attempt, tmp_path, capsys):
    name, changes, said = map(str.strip, attempt.split("|"))
    text, file = scripts.get(name).path.read_text(), tmp_path / f"my_{name[:2]}.py"
    for old, new in (map(str.strip, change.split("=>")) for change in changes.split("; ")):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    code, printed = check.main([str(file)]), capsys.readouterr().out
    assert code == bool(said) and (said or f"this is stage {name[:2]}: ") in printed, printed
    assert [*tmp_path.iterdir()] == [file]


def test_an_attempt_imports_a_file_beside_it(tmp_path, capsys):
    """As with `python my_04.py`."""
    (tmp_path / "my_loss.py").write_text("from torch.nn.functional import cross_entropy\n")
    text = scripts.get("04_batchsize/train").path.read_text()
    text = text.replace("import torch\n", "import my_loss\nimport torch\n", 1)
    (tmp_path / "my_04.py").write_text(text.replace("F.cross_entropy", "my_loss.cross_entropy"))
    code = check.main([str(tmp_path / "my_04.py")])
    assert code == 0, f"the file beside it was not found: {capsys.readouterr().out}"


@pytest.mark.parametrize(
    "text, options, said",
    [
        ("x = (", "", "my.py, line 1: SyntaxError: '\\(' was never closed"),
        ("# coding: latin-1\nx = '\xe9'", "", "my.py as stage \\?\\?: give a .py file"),
        ("# coding: nonsense", "", "my.py, line 1: SyntaxError: unknown encoding"),
        ("x = 1", "", "my.py as stage \\?\\?: give a .py file, and a stage from 02 to 10"),
        ("x = 1", "--stage 42", "my.py as stage 42: give"),
        ("optimizer.step()", "--stage 6", r"my.py, line \d+: NameError: name 'nothing'"),
    ],
)
def test_a_mistake_in_using_it(text, options, said, tmp_path):
    if "step" in text:
        text = scripts.get("06_sgd/train").path.read_text().replace(text, "nothing()")
    (tmp_path / "my.py").write_text(text, "latin-1")
    with pytest.raises(UserError, match=said):
        check.main([str(tmp_path / "my.py"), *options.split()])
