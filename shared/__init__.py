"""The modules that stages import, and two folders: lab/, the commands; emulator/, a package.

README.md in this folder is the map. Nothing in here is specific to one stage.
"""
