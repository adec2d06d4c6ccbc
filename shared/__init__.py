"""The modules that stages import; lab/, the commands; emulator/, a package. README.md is the map.

Nothing in here is specific to one stage.
"""
