"""Why a run is not resumed, by what changed since it was started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders.refusals import Case
from builders.runs import MANIFEST

from tuner.record.manifest import KeptConfig, Manifest
from tuner.record.store import RunStore


def configs(**sha256: str | None) -> Manifest:
    """A run that read configs with these hashes; None: there was no file."""
    kept = {n: KeptConfig(n, f"{n}/config.pbtxt", "", sha256[n]) for n in sha256}
    return replace(MANIFEST, models=kept)


def completed(**text: str | None) -> Manifest:
    """A run whose server completed the configs to these."""
    kept = {n: KeptConfig(n, "", "", None, completed=text[n]) for n in text}
    return replace(MANIFEST, models=kept, streams=dict.fromkeys(text, next(iter(text))))


def client(name: str | None) -> Manifest:
    return replace(completed(m=""), client=name)


def not_resumed() -> dict[str, Case]:
    one = replace(MANIFEST, spec_path="one.yaml", spec_sha256="1")
    file = "workload.arrivals.file"

    def changed(before: Manifest, now: Manifest) -> Case:
        return lambda _: before.refuse_if_different(now)

    def read(**changes: object) -> Case:
        return lambda _: Manifest.from_json({**MANIFEST.to_json(), **changes})

    def second(here: Path) -> None:
        store = RunStore.create(here, "run-1")
        with store.locked(), RunStore(store.directory).locked():
            pass

    return {
        "its spec was edited": changed(one, replace(one, spec_sha256="2")),
        "its spec is another file": changed(
            one, replace(one, spec_path="other.yaml", spec_sha256="2", models={})
        ),
        "a program is another": changed(
            replace(MANIFEST, versions={"tune": "1"}), replace(MANIFEST, versions={"tune": "2"})
        ),
        "a recording holds something else": changed(
            replace(MANIFEST, load_files={file: "1"}), replace(MANIFEST, load_files={file: "2"})
        ),
        "one config of two was edited": changed(
            configs(tokenizer="1", bert="2"), configs(tokenizer="1", bert="3")
        ),
        "a config came where none was": changed(configs(bert=None), configs(bert="3")),
        "a config is gone": changed(configs(bert="2"), configs(bert=None)),
        "a model came": changed(configs(bert="2"), configs(bert="2", head="1")),
        "the server completes one of two otherwise": lambda _: completed(
            head="h", bert="a"
        ).refuse_if_completed_otherwise(completed(head="h", bert="b")),
        "the server completes the only one otherwise": lambda _: completed(
            m="a"
        ).refuse_if_completed_otherwise(completed(m="b")),
        "perf_analyzer measured, tune would": lambda _: client(
            "perf_analyzer"
        ).refuse_if_measured_otherwise(client("tune")),
        "tune measured, perf_analyzer would": lambda _: client("tune").refuse_if_measured_otherwise(
            client("perf_analyzer")
        ),
        "an older tune measured in both ways": lambda _: client(None).refuse_if_measured_otherwise(
            client("tune")
        ),
        "another tune writes it": second,
        "the directory is no run": RunStore.open,
        "another version made it": read(schema_version=9),
        "a stream asks a model that is not served": read(streams={"texts": "bert"}),
        "it has no streams": read(streams={}),
        "it has no models": read(models={}),
        "a part of a model is not served": lambda _: Manifest.from_json(
            replace(
                MANIFEST, models={"m": KeptConfig("m", "m/config.pbtxt", "", None, parts=("bert",))}
            ).to_json()
        ),
    }
