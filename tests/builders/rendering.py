"""Random configs as text: any field, any syntax protobuf allows, comments everywhere."""

from __future__ import annotations

import random
from typing import Any

from tuner.modelconfig.path_steps import is_map
from tuner.modelconfig.schema import new_config
from tuner.modelconfig.values import is_list

WORDS = (
    "a",
    "odd.key",
    "threads",
    "quo'te",
    'dou"ble',
    "# no comment",
    "{ [ <",
    "ü",
    "back\\slash",
    "${TEMPLATE} // +8 1_0 - 1",
    "wide\u3000and\u00a0narrow",
)
#: Fields that the owned paths of the tests lead to; rendered more often than others.
POPULAR = {
    "max_batch_size",
    "dynamic_batching",
    "instance_group",
    "parameters",
    "preferred_batch_size",
    "max_queue_delay_microseconds",
    "default_queue_policy",
    "priority_queue_policy",
    "optimization",
    "response_cache",
    "count",
    "kind",
    "gpus",
    "dims",
    "reshape",
    "control_input",
    "label_filename",
}
PUNCTUATION = set("{}<>[]:,;")


def config_text(rng: random.Random) -> str:
    """A text that parses."""
    renderer = Renderer(rng)
    text = renderer.file()
    return text.replace("\n", "\r\n") if rng.random() < 0.2 else text


class Renderer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.comments = 0
        self.chaotic = rng.random() < 0.3

    def file(self) -> str:
        tokens = self.fields(new_config().DESCRIPTOR, 0)
        text = self.comment() + "\n" if self.maybe(0.2) else ""
        text += self.join(tokens)
        if self.maybe(0.2):
            text += "\n" + self.comment()
        return text + ("" if self.maybe(0.3) else "\n")

    def maybe(self, probability: float) -> bool:
        return self.rng.random() < probability

    def comment(self) -> str:
        self.comments += 1
        nasty = self.rng.choice(
            ["", " { [ <", ' "', " max_batch_size: 3", " # #", " ü }", " - 1 +8", " \u3000"]
        )
        return f"# c{self.comments}{nasty}"

    def fields(self, descriptor: Any, depth: int) -> list[str]:
        """Tokens of a message's body; indentation is given by tokens that begin with newline."""
        chosen = []
        oneofs = set()
        for field in descriptor.fields:
            likely = 0.5 if field.name in POPULAR else 0.08 if depth == 0 else 0.25
            if not self.maybe(likely) or (depth > 4 and field.message_type):
                continue
            if field.containing_oneof is not None:
                if field.containing_oneof.name in oneofs:
                    continue
                oneofs.add(field.containing_oneof.name)
            chosen.append(field)
        self.rng.shuffle(chosen)
        parts: list[list[str]] = []
        for field in chosen:
            parts += self.occurrences(field, depth)
        if self.maybe(0.3):
            self.rng.shuffle(parts)
        tokens: list[str] = []
        for part in parts:
            tokens += self.line_break(depth) + part
            if self.maybe(0.1):
                tokens.append(self.rng.choice([",", ";"]))
        return tokens

    def occurrences(self, field: Any, depth: int) -> list[list[str]]:
        if not is_list(field):
            return [self.single(field, self.value(field, depth))]
        values = [self.value(field, depth) for _ in range(self.rng.randint(1, 3))]
        if self.maybe(0.5):
            return [self.listed(field, values, depth)]
        parts = [self.single(field, value) for value in values]
        if self.maybe(0.3):
            parts.append(self.listed(field, values[: self.rng.randint(0, 2)], depth))
        return parts

    def single(self, field: Any, value: list[str]) -> list[str]:
        colon = [":"] if field.message_type is None or self.maybe(0.3) else []
        return [field.name, *colon, *value]

    def listed(self, field: Any, values: list[list[str]], depth: int) -> list[str]:
        colon = [":"] if field.message_type is None or self.maybe(0.3) else []
        tokens = [field.name, *colon, "["]
        for index, value in enumerate(values):
            tokens += [","] if index else []
            tokens += (self.line_break(depth + 1) if field.message_type else []) + value
        return [*tokens, *(self.line_break(depth) if field.message_type else []), "]"]

    def value(self, field: Any, depth: int) -> list[str]:
        if field.message_type is not None:
            opening, closing = ("<", ">") if self.maybe(0.1) else ("{", "}")
            inner = field.message_type
            body = self.entry(inner, depth) if is_map(field) else self.fields(inner, depth + 1)
            ending = self.line_break(depth) if body and self.maybe(0.8) else []
            return [opening, *body, *ending, closing]
        return self.scalar(field)

    def entry(self, descriptor: Any, depth: int) -> list[str]:
        tokens = []
        for field in descriptor.fields:
            if self.maybe(0.9):
                tokens += self.line_break(depth + 1) + self.single(
                    field, self.value(field, depth + 1)
                )
        return tokens

    def scalar(self, field: Any) -> list[str]:
        kind = field.cpp_type
        if kind == field.CPPTYPE_STRING:
            return [self.string() for _ in range(self.rng.choice([1, 1, 1, 2]))]
        if kind == field.CPPTYPE_BOOL:
            return [self.rng.choice(["true", "false", "True", "1", "f", "00", "01"])]
        if kind == field.CPPTYPE_ENUM:
            return [self.rng.choice([v.name for v in field.enum_type.values])]
        if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            return [self.rng.choice(["0.5", "1", "0.1", "1e-3", ".25"])]
        signed = kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
        negative = ["-1", "- 1", "-\t2"] if signed else []
        return [self.rng.choice(["1", "2", "8", "16", "0x10", "010", *negative])]

    def string(self) -> str:
        quote = self.rng.choice(["'", '"'])
        word = self.rng.choice(WORDS).replace("\\", "\\\\")
        return quote + word.replace(quote, "\\" + quote) + quote

    def line_break(self, depth: int) -> list[str]:
        """Newline, indentation, and now and then a comment or an empty line."""
        if self.maybe(0.15):
            return [" "]
        indent = ("\t" if self.comments % 7 == 3 else "  ") * depth
        tail = f"  {self.comment()}" if self.maybe(0.15) else ""
        comment_line = f"\n{indent}{self.comment()}" if self.maybe(0.1) else ""
        blank = "\n" if self.maybe(0.1) else ""
        return [f"{tail}{comment_line}{blank}\n{indent}"]

    def join(self, tokens: list[str]) -> str:
        text = ""
        for token in tokens:
            gap = token[:1].isspace() or not text or text[-1].isspace()
            if not gap:
                text += self.gap(text[-1], token)
            text += token
        return text

    def gap(self, before: str, token: str) -> str:
        free = before in PUNCTUATION or token in PUNCTUATION
        if self.chaotic and self.maybe(0.2):
            return self.rng.choice(["\n", "\t", "  ", f" {self.comment()}\n", " \n\n "])
        if token in (":", ",", ";"):
            return ""
        return "" if free and self.maybe(0.3) else " "
