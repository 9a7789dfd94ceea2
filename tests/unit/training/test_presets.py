"""The presets are what they were when the figures were recorded; `GENERATE_EXPECTED=1` writes what they are now."""

import json
import os
from pathlib import Path
from typing import Any

from ellzero.training.presets import fast, paper, scaled_to_digits, smallest

EXPECTED = Path(__file__).parents[2] / "data" / "presets.json"


def without_modules(settings: Any) -> Any:
    """Leaves out of settings where in the package their classes and functions are."""
    if isinstance(settings, dict):
        return {name: without_modules(value) for name, value in settings.items()}
    return settings.rsplit(":", 1)[-1] if isinstance(settings, str) and settings.startswith("ellzero.") else settings


def test_presets_are_those_of_the_figures() -> None:
    presets = {preset.__name__: preset() for preset in (paper, smallest, fast)}
    presets |= {f"{name}, digits": scaled_to_digits(preset) for name, preset in presets.items()}
    found = json.loads(json.dumps({name: without_modules(preset.settings()) for name, preset in presets.items()}))
    if os.environ.get("GENERATE_EXPECTED") == "1":
        EXPECTED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(EXPECTED.read_text(encoding="utf-8"))
