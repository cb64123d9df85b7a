"""The plan of a write: which files get which content. `writeback.apply` carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.errors import SpecError, TunerError
from tuner.load.probes.warmup import propose
from tuner.modelconfig.base import Base
from tuner.modelconfig.edit import edit, unified_diff
from tuner.modelconfig.encoding import UTF_8, decode, encode
from tuner.modelconfig.files import directory_of
from tuner.modelconfig.message import ParseMistake, parse, try_parse
from tuner.modelconfig.path import canonical
from tuner.modelconfig.path_steps import may_choose_code
from tuner.record.manifest import KeptConfig, Manifest
from tuner.record.result_schema import Result
from tuner.space.build import parameter_of
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.environment import Needed, needed_variables, texts_of
from tuner.spec.labels import of_label
from tuner.spec.mistakes import listed
from tuner.spec.model import Spec
from tuner.writeback.files import read_plain, sha256_of_bytes, sha256_or_none
from tuner.writeback.target import is_config_of


def sha256_of(text: str, encoding: str = UTF_8) -> str:
    """SHA-256 of a config's text as stored on disk, in hex."""
    return sha256_of_bytes(encode(text, encoding))


@dataclass(frozen=True)
class FilePlan:
    """The replacement of one config; with equal texts, a file to watch.

    Attributes:
        sha256_before: Hash of the file that the run read; ``None`` without a file (auto-complete).
        text_before: Content of that file; ``None`` without a file.
        text_after: The new content.
    """

    model: str
    path: Path
    sha256_before: str | None
    text_before: str | None
    text_after: str
    encoding: str = UTF_8

    @property
    def content_after(self) -> bytes:
        return encode(self.text_after, self.encoding)

    @property
    def sha256_after(self) -> str:
        return sha256_of_bytes(self.content_after)

    @property
    def changes(self) -> bool:
        return self.sha256_before != self.sha256_after

    def diff(self) -> str:
        name = self.path.relative_to(directory_of(self.path))
        return unified_diff(self.text_before or "", self.text_after, f"{self.model}/{name}")


@dataclass(frozen=True)
class WritePlan:
    """The configs of one winner, written together or not at all.

    Attributes:
        files: At least one; all in one repository.
        server_args: Server arguments of the winner; they cannot be written to a config.
        environment: Variables of the server's environment; likewise.
    """

    files: tuple[FilePlan, ...]
    run_id: str
    server_args: tuple[str, ...] = ()
    environment: Needed = field(default_factory=dict)

    @property
    def repository(self) -> Path:
        return directory_of(self.files[0].path).parent


def plan_from_run(
    manifest: Manifest, result: Result | None, repository: Path | None = None
) -> WritePlan:
    """The plan to write a run's winner.

    Args:
        result: The result of the run; None if it left none.
        repository: A repository to use in place of the run's, for instance after a move.

    Raises:
        SpecError: The run has no config to write, or its files contradict each other.
    """
    if result is None or result.winner is None or not result.models:
        ended = "left no result" if result is None else f"ended as {result.status.value}"
        raise SpecError(
            f"run {manifest.run_id} has no config to write: it {ended}",
            "its report says why; only a run with a winner changes a config",
        )
    if wrong := next(_mistakes(manifest, result, repository), None):
        raise _refusal(manifest, wrong)
    read = manifest.models
    files = [
        file
        for label, text in _texts_after(result).items()
        for file in file_plans(read[label], text, repository)
    ]
    return WritePlan(tuple(files), manifest.run_id, result.server_args, result.environment)


def plan_by_load(
    manifest: Manifest,
    configs: Mapping[str, Candidate],
    user_spec: Callable[[], Spec],
    repository: Path | None = None,
) -> WritePlan:
    """The plan to write configs beside a config.pbtxt, as `configs/NAME.pbtxt`.

    Args:
        configs: The configs by NAME.
        user_spec: As in `refuse_forged`.
        repository: As in `plan_from_run`.

    Raises:
        SpecError: A config selects code that the user's spec does not search.
    """
    files = list[FilePlan]()
    for name, candidate in configs.items():
        _refuse_strange_code(candidate, user_spec)
        for label in candidate.models:
            config = manifest.models[label]
            read = directory_of(Path(config.path))
            there = read if repository is None else repository / config.name
            path = there / "configs" / f"{name}.pbtxt"
            text, there_now = text_with(config, candidate.of(label)), read_plain(path)
            old = None if there_now is None else decode(there_now)[0]
            before = sha256_or_none(there_now)
            files.append(FilePlan(config.name, path, before, old, text, config.encoding))
    return WritePlan(tuple(files), manifest.run_id)


def refuse_forged(manifest: Manifest, result: Result, user_spec: Callable[[], Spec]) -> None:
    """Refuses a winner that its run cannot have made.

    Args:
        user_spec: Reads a spec of the user; called if the winner has a field that selects code.

    Raises:
        SpecError: The config or the arguments differ from those that the winner's fields give with
            the configs that the run read; or they select code that the user's spec does not search.
    """
    assert result.winner is not None
    winner, after = result.winner.candidate, _texts_after(result)
    try:
        needed, given = needed_variables(winner, manifest.current), result.model_fields_set
        args = result.server_args if "server_args" in given else winner.server_args
        environment = result.environment if "environment" in given else needed
        started = (args, environment) == (winner.server_args, needed)
        same = started and _made(manifest, result, winner, [*after]) == after
    except (LookupError, TypeError, ValueError, TunerError):
        same = False
    if not same:
        raise _refusal(manifest, "the winner's config does not follow from its fields")
    _refuse_strange_code(winner, user_spec)


def _made(
    manifest: Manifest, result: Result, winner: Candidate, labels: Sequence[str]
) -> dict[str, str]:
    """The configs of a winner, by label, as its run makes them, comments included."""
    read = {label: manifest.models[label] for label in labels}
    bases = {label: (config.text, _base_of(config)) for label, config in read.items()}
    made = texts_of(winner, manifest.current, bases)
    if (warm_up := result.warm_up) is not None:
        of_model = [label for label in labels if read[label].name == warm_up.model]
        made |= {label: propose(made[label], warm_up) for label in of_model}
    return made


def _refuse_strange_code(winner: Candidate, user_spec: Callable[[], Spec]) -> None:
    code = {knob: v for knob, v in winner.fields.items() if may_choose_code(knob.path)}
    text = f"the winner sets {listed(code)}, which can select the code that a model runs"
    hint = "to allow that, name a spec of yours that searches it: tune apply RUN SPEC"
    try:
        models = user_spec().models if code else {}
    except SpecError as error:
        raise SpecError(f"{text}; {error.message}", hint) from error
    for knob, value in code.items():
        space = models[knob.owner].space if knob.owner in models else {}
        given = {canonical(path): values for path, values in space.items()}
        if knob.path not in given or value not in parameter_of(knob, given[knob.path]):
            raise SpecError(f"{text}; your spec does not search {knob} = {value!r}", hint)


def _refusal(manifest: Manifest, wrong: str) -> SpecError:
    return SpecError(
        f"run {manifest.run_id} cannot be applied: {wrong}",
        "it was edited, or damaged: apply it as tune left it, or run `tune run` again",
    )


def text_with(config: KeptConfig, fields: Mapping[str, FieldValue]) -> str:
    """The config that a run read, with the winner's changes."""
    return edit(config.text, _base_of(config).changes(fields))


def _base_of(config: KeptConfig) -> Base:
    base = Base.of_file(parse(config.text))
    if config.completed is None:
        return base
    completed, overridden = parse(config.completed), frozenset(config.overridden)
    return replace(base, completed=completed, overridden=overridden)


def _texts_after(result: Result) -> dict[str, str]:
    return {label: config.config_after for label, config in result.models.items()}


def file_plans(
    config: KeptConfig, text_after: str, repository: Path | None = None
) -> Iterator[FilePlan]:
    """The replacements for a model; a file that was read but is not written is only watched.

    ``repository``: as in `plan_from_run`.
    """
    read = Path(config.path)
    there = directory_of(read) if repository is None else repository / config.name
    path, target = there / read.relative_to(directory_of(read)), there / config.write_to
    text_before = None if config.sha256 is None else config.text
    plan = FilePlan(config.name, path, config.sha256, text_before, text_after, config.encoding)
    if path == target:
        yield plan
        return
    if text_before is not None:
        yield replace(plan, text_after=text_before)
    if text_before != text_after:
        yield replace(plan, path=target, sha256_before=None, text_before=None)


def _mistakes(manifest: Manifest, result: Result, repository: Path | None) -> Iterator[str]:
    """Contradictions in a run, which another user may have forged to have a file written."""
    if result.model != manifest.name:
        yield f"its result is about the model {result.model!r}, not {manifest.name!r}"
    texts = _texts_after(result)
    for label, text in texts.items():
        if label not in manifest.models:
            yield f"its winner has a config of {label!r}, but it read none"
            return
        config = manifest.models[label]
        for file in file_plans(config, text, repository):
            if not is_config_of(file.path, file.model):
                yield f"{file.path} is not a config of a model {file.model!r}"
        yield from _mistakes_of(config, text, of_label(label, manifest.models))
    stated = {file.sha256_after for file in result.written.files} if result.written else set()
    after = {sha256_of(text, manifest.models[label].encoding) for label, text in texts.items()}
    if stated - after - {None}:
        yield "its winner's config does not match its hash"


def _mistakes_of(config: KeptConfig, text_after: str, of: str) -> Iterator[str]:
    """Contradictions in one model's config."""
    texts = {f"the config it read{of}": config.text, f"its winner's config{of}": text_after}
    for what, text in texts.items():
        if (mistake := _mistake(text, config.encoding)) is not None:
            yield f"{what} is not a config: {mistake}"
    if config.sha256 is not None and sha256_of(config.text, config.encoding) != config.sha256:
        yield f"the config it read{of} does not match its hash"
    if config.sha256 is None and config.text:
        yield "it has the text of a config that, by its own account, did not exist"


def _mistake(text: str, encoding: str) -> str | None:
    """Why the text is not a config; None if it is one."""
    try:
        encode(text, encoding)
    except SpecError as error:
        return error.message
    except UnicodeEncodeError:
        return "it is not Unicode text"
    config = try_parse(text)
    return f"line {config.line}: {config.message}" if isinstance(config, ParseMistake) else None
