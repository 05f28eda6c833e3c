"""Patches, each of which plants one wrong step in the engine, and the program that demands that each is found."""
