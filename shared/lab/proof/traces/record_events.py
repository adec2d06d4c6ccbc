"""Run the model of a course and print the caching allocator's events, to compare with a real trace.

    python record_events.py {forward,train} TOKENS [--bf16] [--out FILE]

One event a line: a SIZE (alloc), f (free_completed), S (segment_alloc), R (segment_free).
"""

import argparse
import contextlib
import os
import sys

# From PyTorch 2.15 on, cuBLAS's workspace is otherwise taken and freed at each product.
os.environ["TORCH_CUBLAS_WORKSPACE_CACHE"] = "1"
import torch  # noqa: E402

LETTER = {"alloc": "a", "free_completed": "f", "segment_alloc": "S", "segment_free": "R"}


def listen():
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)


def adam(states):
    for p, state in states.items():
        grad = p.grad.data
        p.data -= 1e-5 * p.data
        old_m = state.get("m", torch.zeros_like(grad))  # the default is made each time
        old_v = state.get("v", torch.zeros_like(grad))
        m = 0.9 * old_m + 0.1 * grad
        v = 0.999 * old_v + 0.001 * torch.square(grad)
        p.data -= 1e-3 * m / (torch.sqrt(v) + 1e-8)
        state["m"], state["v"] = m, v


def clear(states):
    for p in states:
        p.grad = None


def run(mode, tokens, cast):  # recorded after five rounds: the sixth
    from model_2026 import BATCH, VOCAB, Model, cross_entropy

    model = Model(tokens)
    states = {p: {} for p in model.parameters()}

    def make(n):
        return torch.randint(0, VOCAB, (n, BATCH, tokens), device="cuda")

    data, more = make(5), make(1)
    if mode == "forward":
        with torch.inference_mode():
            for x in data:
                with cast:
                    model(x)
            listen()
            with cast:
                model(more[0])
        return locals()
    labels, more_labels = make(5), make(1)
    for i in range(6):
        if i == 5:
            del output, loss  # noqa: F821, of the round before
            listen()
        with cast:
            output = model(data[i] if i < 5 else more[0])
            loss = cross_entropy(output, labels[i] if i < 5 else more_labels[0])
        loss.backward()
        adam(states)
        if i < 5:
            clear(states)
    return locals()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["forward", "train"])
    parser.add_argument("tokens", type=int)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    args = parser.parse_args()
    cast = torch.autocast("cuda", torch.bfloat16) if args.bf16 else contextlib.nullcontext()
    # The name keeps what locals() returned: freeing it would be events, too.
    tensors = run(args.mode, args.tokens, cast)
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        if event["action"] in LETTER:
            print(LETTER[event["action"]], event["size"], file=args.out)
