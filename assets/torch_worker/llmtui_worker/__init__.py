"""The compute side of `engine: torch`: holds a model and its optimizer on one or more devices, and executes the engine's requests.

Batches, losses, schedules, checkpoints and commands are up to the engine: every rank gets the same requests in the same order.
"""

PROTOCOL = 4
