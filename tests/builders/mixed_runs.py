"""A synthetic run of an ensemble: one of `synthetic`, with its figures given to several models.

``interactive`` asks the ensemble ``nlp`` of ``tokenizer`` and ``tiny-bert``; ``embedding`` asks
``tiny-bert`` beside it. Nothing here was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders.candidates import fields_of
from builders.runs import CONFIG, COUNT, Toy, make_run

from tuner.measurement.measurement import Measurement, ServerStatistics
from tuner.record.bottleneck import bottleneck_of
from tuner.record.manifest import KeptConfig, Manifest
from tuner.record.proved import ProvedConfig
from tuner.record.store import RunStore
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.writeback.plan import sha256_of, text_with

STREAMS = {"interactive": "nlp", "embedding": "tiny-bert"}
PARTS = {"tokenizer": (), "tiny-bert": (), "nlp": ("tokenizer", "tiny-bert")}
SLOS = {"interactive": "p99_latency <= 40ms", "embedding": "p99_latency <= 100ms"}


def mixed_run(parent: Path, *, streams: bool = True, trials: int = 14) -> Path:
    """The directory of a run that improved; ``streams``: two of them, else one on the ensemble."""
    toy = Toy(trials=trials, model="nlp", cache=False)
    run = make_run(parent, toy)
    mix = _Mix(streams)
    store = RunStore(run)
    manifest = mix.manifest(store.manifest())
    _rewrite(run / "trials.jsonl", mix.trial)
    _rewrite(run / "confirmation.jsonl", mix.repeat)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(mix.result(result, manifest)))
    store.write_manifest(manifest.to_json())
    return run


def _rewrite(path: Path, change: Any) -> None:
    rows = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class _Mix:
    def __init__(self, streams: bool) -> None:
        self._streams = STREAMS if streams else {"nlp": "nlp"}
        self._keys: dict[str, str] = {}

    def manifest(self, manifest: Manifest) -> Manifest:
        models = {
            name: KeptConfig(
                *(name, f"/models/{name}/config.pbtxt", CONFIG.replace("toy", name)),
                sha256_of(CONFIG.replace("toy", name)),
                completed=f'name: "{name}" {"ensemble_scheduling {}" if parts else ""}',
                parts=parts,
            )
            for name, parts in PARTS.items()
        }
        kept = replace(manifest, models=models, streams=self._streams)
        if len(self._streams) == 1:
            return replace(kept, name="nlp", spec={**manifest.spec, "model": "nlp"})
        shares: dict[str, dict[str, Any]] = {"interactive": {"share": "100%"}}
        streams = {
            name: {"model": asked, "slo": [SLOS[name]], **shares.get(name, {"rate": 20.0})}
            for name, asked in STREAMS.items()
        }
        spec = {
            "models": {name: {} for name in PARTS},
            "streams": streams,
            "objective": manifest.spec["objective"],
        }
        return replace(kept, name="nlp+tiny-bert", spec=spec)

    def trial(self, row: dict[str, Any]) -> dict[str, Any]:
        candidate = self._candidate(row["candidate"])
        points = [self.point(point) for point in row["points"]]
        return {**row, "candidate": candidate, "points": points}

    def repeat(self, row: dict[str, Any]) -> dict[str, Any]:
        key = self._keys[row["candidate_key"]]
        return {**row, "candidate_key": key, "point": self.point(row["point"])}

    def result(self, result: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
        winner = self._facts(result["winner"], manifest)
        changed = {
            name: {
                "config_before": manifest.models[name].text,
                "config_after": text_with(manifest.models[name], fields),
            }
            for name, fields in Candidate.from_json(winner["candidate"]).models.items()
        }
        first, second = (
            {
                **result["written"],
                "path": f"/models/{name}/config.pbtxt",
                "sha256_after": sha256_of(texts["config_after"]),
            }
            for name, texts in changed.items()
        )
        return {
            **result,
            "model": manifest.name,
            "baseline": self._facts(result["baseline"], manifest),
            "winner": winner,
            "models": changed,
            "written": {**first, "others": [second]},
            "overload": None,
        }

    def _facts(self, facts: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
        candidate = Candidate.from_json(self._candidate(facts["candidate"]))
        points = [self._judged(point["measurement"]) for point in facts["rounds"]]
        bottleneck = bottleneck_of(points[-1], manifest)
        assert bottleneck is not None
        return replace(ProvedConfig.of(candidate, points), bottleneck=bottleneck).to_json()

    def point(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return self._judged(row["measurement"]).to_json()

    def _judged(self, measurement: dict[str, Any]) -> Point:
        mixed = self._mixed(Measurement.from_json(measurement))
        slos = [replace(Slo.parse(SLOS[n]), stream=n) for n in mixed.streams]
        return judge_point(slos or [Slo.parse(SLOS["interactive"])], mixed)

    def _candidate(self, row: dict[str, Any]) -> dict[str, Any]:
        old = Candidate.from_json(row)
        count = fields_of(old)[COUNT]
        assert isinstance(count, int)
        new = Candidate.of_models({"tiny-bert": fields_of(old), "tokenizer": {COUNT: 5 - count}})
        self._keys[old.key] = new.key
        return new.to_json()

    def _mixed(self, m: Measurement) -> Measurement:
        """A fifth of a request is the tokenizer's; a tenth of the requests come beside."""
        assert m.server is not None
        models = {
            "tokenizer": _part(m.server, 0.1, 0.2),
            "tiny-bert": _part(m.server, 0.9, 0.8),
            "nlp": _part(m.server, 0.0, 1.0),  # Triton's has the steps' computing
        }
        if len(self._streams) == 1:
            return replace(m, models=models, server=models["nlp"])
        beside = replace(
            m,
            background=True,
            server=models["tiny-bert"],
            models={},
            throughput_infer_per_s=20.0,
            completed_count=600,
            p99_latency_us=m.p99_latency_us * 0.8,
        )
        own = replace(m, server=models["nlp"], models={})
        return replace(
            m, streams={"interactive": own, "embedding": beside}, models=models, server=None
        )


def _part(server: ServerStatistics, queue: float, compute: float) -> ServerStatistics:
    return replace(
        server,
        queue_us=server.queue_us * queue,
        compute_input_us=server.compute_input_us * compute,
        compute_infer_us=server.compute_infer_us * compute,
        compute_output_us=server.compute_output_us * compute,
    )
