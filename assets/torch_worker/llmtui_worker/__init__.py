"""The compute side of `engine: torch`: holds a model and its optimizer on one device or many, and does what the engine asks.

Batches, losses, schedules, checkpoints and commands are the engine's: every rank gets the same requests in the same order.
"""

PROTOCOL = 2
