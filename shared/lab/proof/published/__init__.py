"""Programs that others have measured, on emulated GPUs, beside what they published."""
