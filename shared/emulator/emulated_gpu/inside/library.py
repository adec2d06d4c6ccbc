"""The C functions of the preloaded library that Python calls, with their types."""

import ctypes

# None stands for all libraries of this process, in the order in which they were loaded: the one of
# LD_PRELOAD is the first.
_PROCESS = ctypes.CDLL(None)
if not hasattr(_PROCESS, "emulator_start"):
    raise ImportError("no GPU is emulated in this process: see emulated_gpu.launch.environment()")


def _function(name, result, *arguments):
    function = getattr(_PROCESS, name)
    function.restype, function.argtypes = result, arguments
    return function


# In runtime.c.
read_settings = _function("emulator_start", None)
names_called = _function("emulator_called", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
# In memory.c.
set_counted = _function("emulator_counted", None)
# In transfers.c.
set_answers = _function("emulator_answers", None, ctypes.POINTER(ctypes.c_int64), ctypes.c_int)
let_be_true = _function("emulator_without_values", None)
# In streams.c.
log_work = _function("emulator_log", None, ctypes.c_char_p)
work_count = _function("emulator_issued", ctypes.c_long)
begin_operation = _function("emulator_begin_operation", ctypes.c_double)
end_operation = _function("emulator_end_operation", ctypes.c_double, ctypes.c_double)
lengthen = _function("emulator_lengthen", None, ctypes.c_double)
times = _function("emulator_times", None, ctypes.POINTER(ctypes.c_int64))
let_host_work = _function("emulator_host_works", None, ctypes.c_double)
has_kept = _function("emulator_kept", ctypes.c_bool)
end = _function("emulator_end", None)
# In ranks.c.
communicators = _function("emulator_communicators", ctypes.c_int)
set_split_ranks = _function("emulator_split", None, ctypes.c_int)
# In host.c; a pointer, and the bytes from there on.
is_untouched = _function("emulator_untouched", ctypes.c_bool, ctypes.c_void_p, ctypes.c_size_t)
give_back = _function("emulator_forget", None, ctypes.c_void_p, ctypes.c_size_t)
