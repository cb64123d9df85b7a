"""Whether the installed server's Python models can exchange strings."""

from __future__ import annotations

import numpy as np
import pytest

needs_strings = pytest.mark.skipif(
    int(np.__version__.split(".")[0]) > 1, reason="this server's Python models need NumPy 1 for it"
)
