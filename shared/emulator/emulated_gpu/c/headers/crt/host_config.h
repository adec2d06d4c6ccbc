// Stands in for crt/host_config.h, which PyTorch's wheels lack: it checks compilers.
