"""Where memory goes, for the measurements of stages and, as a part of its package, for the emulator."""
