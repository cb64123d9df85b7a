"""What a spec may ask of decoupled models; what it may not is in `golden/messages/jobs-refused`."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.messages_jobs import DECOUPLED, PLAIN, SPEECH, made

from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT, GeneratorKind
from tuner.prepare.tools import choose_generator


@pytest.mark.parametrize("until", ["first", "last"])
def test_slo_on_one_response_selects_the_client_of_tune(tmp_path: Path, until: str) -> None:
    text = SPEECH.format(
        slo=f"p99_{until}_response <= 1s",
        protocol="grpc",
        objective=f"minimize p90_{until}_response at 20/s",
    )
    choice = choose_generator(made(text, speech=PLAIN + DECOUPLED)(tmp_path))
    assert choice.kind is TUNE_CLIENT


@pytest.mark.parametrize(("share", "kind"), [("0%", PERF_ANALYZER), ("1%", TUNE_CLIENT)])
def test_slo_that_allows_errors_selects_the_client_of_tune(
    tmp_path: Path, share: str, kind: GeneratorKind
) -> None:
    """perf_analyzer ended at the first error, so that such an SLO could not be met."""
    text = f"""\
model: speech
repository: models
slo: [p99_latency <= 1s, error_rate <= {share}]
space: {{instance_group.count: {{int: [1, 2]}}}}
"""
    assert choose_generator(made(text, speech=PLAIN)(tmp_path)).kind is kind
