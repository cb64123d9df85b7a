"""Whole writes: candidates of a drafted space, written and taken back."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from builders.candidates import fields_of, the_one
from builders.configs import GOOD
from builders.owned import assert_only_owned_text_changes
from builders.rendering import config_text
from fuzz.near import CONFIG, cases, fuzzed, lay_out, place
from hypothesis import strategies as st

from tuner.errors import TunerError
from tuner.modelconfig.edit import edit
from tuner.modelconfig.files import ModelFiles, read_model
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import FieldValue, in_order
from tuner.modelconfig.schema import same_config
from tuner.prepare.job import Job, draw_up, job_from
from tuner.space.draft import draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel
from tuner.spec.load import load_spec
from tuner.writeback.apply import apply
from tuner.writeback.plan import FilePlan, WritePlan
from tuner.writeback.rollback import rollback

_CANDIDATES = 4
_MACHINES = (Machine(cores=1), Machine(cores=8), Machine(16, gpus=2, gpu_memory_bytes=80 << 30))
_RANDOM = st.randoms(use_true_random=True)
_RENDERED = _RANDOM.map(lambda rng: config_text(rng).encode())


@fuzzed(_RANDOM, st.sampled_from([CONFIG, *cases("pbtxt/**/*.pbtxt")]) | _RENDERED, percent=40)
def test_write_to_any_config_is_exact_and_taken_back_exactly(rng: Random, config: bytes) -> None:
    with place() as here:
        lay_out(here / "models" / "m", config)
        try:
            files = read_model(here / "models", "m")
            files.config()
        except TunerError:
            return
        _write_and_take_back(files, rng)


def test_every_published_config_is_written_and_taken_back_exactly() -> None:
    done = 0
    for seed, path in enumerate(GOOD):
        with place() as here:
            lay_out(here / "models" / "m", path.read_bytes())
            done += _write_and_take_back(read_model(here / "models", "m"), Random(seed))
    assert done >= len(GOOD)


def _write_and_take_back(files: ModelFiles, rng: Random) -> int:
    """Writes candidates to a model, one after the other, and returns how many."""
    name = files.config().name
    try:
        job = _drafted(files, rng)
    except TunerError:  # not to be drafted for or measured
        return 0
    drawn = (job.space.sample(rng) for _ in range(_CANDIDATES))
    candidates = [candidate for candidate in drawn if candidate is not None]
    base = the_one(job.served.models).base
    for candidate in candidates:
        fields = fields_of(candidate)
        after = the_one(draw_up(job, candidate).configs).config_after
        wanted = base.request(fields)
        wanted.name = name  # a job fills it in, for messages
        _check(files, base.changes(fields), after, wanted)
    return len(candidates)


def _drafted(files: ModelFiles, rng: Random) -> Job:
    spec = files.directory.parent.parent / "spec.yaml"
    model = DraftedModel(files.config(), files.completes(files.config()))
    spec.write_text(draft_spec({"m": model}, rng.choice(_MACHINES), "models"), encoding="utf-8")
    loaded = load_spec(spec)
    names = {"repository": files.directory.parent, "model": "m"}
    return job_from(loaded, loaded.spec.model_copy(update=names), {})


def _check(files: ModelFiles, fields: Mapping[str, FieldValue], after: str, wanted: Any) -> None:
    """``after`` means ``wanted``, differs in ``fields`` only, and is written and taken back."""
    before, text = files.path.read_bytes(), files.text
    for path, value in in_order(fields):
        edited = edit(text, {path: value})
        if edited != text:
            assert_only_owned_text_changes(text, path, edited)
        text = edited
    assert after in (text, files.text)  # nothing is edited where all fields together change none
    plan = FilePlan("m", files.path, files.sha256, files.text, after, files.encoding)
    written = apply(WritePlan((plan,), "run"))
    content = files.path.read_bytes()
    assert content == plan.content_after
    assert written.files[0].sha256_after == plan.sha256_after
    assert same_config(parse(content.decode(files.encoding)), wanted), sorted(fields)
    if written.changed:
        rollback(files.directory.parent, "m")
    assert files.path.read_bytes() == before
