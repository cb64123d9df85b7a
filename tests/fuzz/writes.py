"""Whole writes: candidates of a drafted space, written and taken back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from builders.candidates import fields_of, the_one
from builders.owned import assert_only_owned_text_changes
from fuzz.watch import BadBehaviourError

from tuner.bench.job import Job, draw_up, job_from
from tuner.errors import TunerError
from tuner.modelconfig.edit import edit
from tuner.modelconfig.files import ModelFiles, read_model
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import FieldValue, in_order
from tuner.modelconfig.schema import same_config
from tuner.space.draft import DraftedModel, Machine, draft_spec
from tuner.spec.load import load_spec
from tuner.writeback.plan import FilePlan, WritePlan, apply
from tuner.writeback.rollback import rollback

_CANDIDATES = 4
_MACHINES = (Machine(cores=1), Machine(cores=8), Machine(16, gpus=2, gpu_memory_bytes=80 << 30))


def write_and_take_back(seed: int, repository: Path) -> int:
    """Writes to model ``m`` of a repository what ``seed`` chooses, one after the other.

    Returns:
        How many writes there were, exact and taken back exactly.

    Raises:
        SpecError: The config itself is none.
        BadBehaviourError: A write, or what was left after taking it back, is not exact.
    """
    files, done = read_model(repository, "m"), 0
    config = files.config()
    for job, candidate in _candidates(files, random.Random(seed)):
        fields = the_one(job.served.models).base.changes(fields_of(candidate))
        after = _told(lambda: the_one(draw_up(job, candidate).configs).config_after)  # noqa: B023
        asked = the_one(job.served.models).base.request(fields_of(candidate))
        asked.name = config.name  # a job fills it in, for messages
        _check(files, fields, after, asked)
        done += 1
    return done


def _candidates(files: ModelFiles, rng: random.Random) -> Iterator[tuple[Job, Any]]:
    """Of the space that is drafted; none where the model is not to be drafted for or measured."""
    place = files.directory.parent.parent / "spec.yaml"
    try:
        whole = DraftedModel(files.config(), files.completes(files.config()))
        text = draft_spec({"m": whole}, rng.choice(_MACHINES), "models")
        place.write_text(text, encoding="utf-8")
        loaded = load_spec(place)
        own = {"repository": files.directory.parent, "model": "m"}
        job = job_from(loaded, loaded.spec.model_copy(update=own), {})
    except TunerError:
        return
    for _ in range(_CANDIDATES):
        if (candidate := job.space.sample(rng)) is not None:
            yield job, candidate


def _check(files: ModelFiles, fields: Mapping[str, FieldValue], after: str, wanted: Any) -> None:
    """``after`` means ``wanted``, differs in ``fields`` only, and is written and taken back."""
    before = files.path.read_bytes()
    text = files.text
    for path, value in in_order(fields):
        edited = edit(text, {path: value})
        if edited != text:
            assert_only_owned_text_changes(text, path, edited)
        text = edited
    if after not in (text, files.text):  # nothing is edited where all fields together change none
        raise BadBehaviourError("several fields are not edited as they are one by one")
    plan = FilePlan("m", files.path, files.sha256, files.text, after, files.encoding)
    written = _told(lambda: apply(WritePlan((plan,), "run")))
    found = files.path.read_bytes()
    if found != plan.content_after or written.files[0].sha256_after != plan.sha256_after:
        raise BadBehaviourError("the file does not hold what was to be written")
    if not same_config(parse(found.decode(files.encoding)), wanted):
        raise BadBehaviourError(f"the file does not say what was asked for: {sorted(fields)}")
    if written.changed:
        _told(lambda: rollback(files.directory.parent, "m"))
    if files.path.read_bytes() != before:
        raise BadBehaviourError("taking the write back did not restore the file")


def _told(act: Any) -> Any:
    """From here on, an error is not an answer."""
    try:
        return act()
    except TunerError as error:
        raise BadBehaviourError(f"{type(error).__name__}: {error}") from error
