"""An emulated GPU: PyTorch's own CUDA build runs without a GPU, and its memory is counted."""


def run(command, card="a100", devices=1, **options):
    """Run a program with emulated GPUs until it ends, and return its peaks of memory.

        emulated_gpu.run([sys.executable, "train.py"], card="l4").peaks[0].reserved  # bytes

    It is a function that starts a process, and can be no context manager: the libraries that stand
    in for NVIDIA's have to be there before PyTorch is, so in a process that has imported PyTorch it
    is too late.

    Args:
        command: the program's words, a list.
        card: the name of a card, as `emulated-gpu cards` lists them.
        devices: the number of GPUs.
        options: host_us, alone, rank, memory_gb and context_gb, as in launch.settings(); history,
            whether to find the lines that hold memory at the peak (`at_peak`); env, variables of
            the environment besides this process's; cwd, stdout, stderr, as in subprocess.Popen.

    Returns:
        programs.Run: `code`, `peaks` and `needs_gb`.

    Raises:
        argparse.ArgumentTypeError: there is no such card.
        build.BuildError: this machine lacks something, such as a C compiler; the text says what.
    """
    # Not above: every emulated process imports this package when it starts.
    from emulated_gpu import programs

    return programs.run(command, card, devices, **options)
