from __future__ import annotations

import json

import pytest
from builders.configs import BAD, GOOD, case, read
from builders.effort import takes_at_most
from google.protobuf import json_format

from tuner.errors import SpecError
from tuner.modelconfig.edit import edit
from tuner.modelconfig.message import (
    ParseMistake,
    newer_client,
    parse,
    to_load_json,
    try_parse,
    unknown_fields,
)
from tuner.modelconfig.schema import new_config, same_config
from tuner.modelconfig.tree import Items, Message, build, elements, locate, tokenize

KNOWS_METRICS = "model_metrics" in new_config().DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.stem)
def test_good_configs_parse_and_survive_json(path):
    config = parse(read(path))
    assert same_config(json_format.Parse(to_load_json(config), new_config()), config)


@pytest.mark.parametrize(
    ("name", "position", "said", "hint"),
    [
        ("unknown_field", "2:1", "no field 'max_batchsize'", "did you mean max_batch_size?"),
        ("wrong_place", "1:1", "no field 'max_queue_delay", "belongs at dynamic_batching."),
        ("priority_map", "10:5", "PriorityQueuePolicyEntry", "{ key: ... value { ... } }"),
        ("unclosed", "3:33", 'Expected "}"', "not closed"),
        ("open_string", "1:7", "missing ending quote", "on the line it begins"),
        ("unknown_enum", "1:26", "KIND_GPUS", "KIND_GPU or KIND_CPU"),
        ("not_a_number", "1:17", "eight", ""),
        ("two_schedulers", "2:1", "sequence_batching", "exclude each other"),
        ("twice", "2:7", "multiple", "once"),
        ("missing_comma", "1:31", 'Expected ","', "commas"),
        ("out_of_range", "1:17", "99999999999", ""),
    ],
)
def test_a_mistake_says_where_and_what_to_do(name, position, said, hint):
    with pytest.raises(SpecError) as caught:
        parse(case(f"bad/{name}"), "models/m/config.pbtxt")
    assert caught.value.message.startswith(f"models/m/config.pbtxt:{position}: ")
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_every_bad_case_has_its_expectation():
    marks = test_a_mistake_says_where_and_what_to_do.pytestmark
    assert {p.stem for p in BAD} == {values[0] for values in marks[0].args[1]}


def test_try_parse_gives_the_mistake_as_a_value():
    mistake = try_parse("name: 3")
    assert (mistake.line, mistake.column) == (1, 7)
    assert "string" in mistake.message


def test_load_json_has_proto_names_enum_names_and_empty_messages():
    config = parse(
        """
        dynamic_batching { }
        instance_group { kind: KIND_CPU }
        parameters { key: "a" value { string_value: "1" } }
        """
    )
    assert json.loads(to_load_json(config)) == {
        "dynamic_batching": {},
        "instance_group": [{"kind": "KIND_CPU"}],
        "parameters": {"a": {"string_value": "1"}},
    }


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("max_batch_size: ${BATCH}\n", (1, 17), "a template"),
        ('name: "a"\n{% if x %}\n', (2, 1), "a template"),
        ("max_batch_size: <MAX_BATCH>\n", (1, 17), "a template"),
        ("max_batch_size:%%batch,\n", (1, 16), "a template"),
        ("max_batch_size: @BATCH@\n", (1, 17), "a template"),
        ("max_batch_size: %BATCH%\n", (1, 17), "a template"),
        ("max_batch_size: %d\n", (1, 17), "a template"),
        ("max_batch_size: MAX_BATCH\n", (1, 17), "a template"),
        ("input { data_type: TYPE_#KIND dims: 1 }\n", (1, 20), "a template"),
        ("input { dims: [ #rows, #width ]\n}", (2, 1), "which hides the ] of its line"),
        ("max_batch_size: eight\n", (1, 17), "a whole number, without quotes"),
        ('max_batch_size: "8"\n', (1, 17), "a whole number, without quotes"),
        ("response_cache { enable: yes }\n", (1, 26), "true or false"),
        pytest.param(
            *(
                "model_metrics { }",
                (1, 1),
                "model_metrics is newer than the installed tritonclient: ",
            ),
            marks=pytest.mark.skipif(KNOWS_METRICS, reason="this tritonclient knows it"),
        ),
        ("input { data_type: TYPE_BYTES }", (1, 20), "TYPE_STRING"),
        ("input { dims: [1, 2, ] }", (1, 22), "remove the comma"),
        ("instance_group [ { count: 1 }, # one\n ]", (2, 2), "remove the comma"),
        ('max_batch_size: # later\nname: "x"\n', (2, 1), "max_batch_size has no value"),
        ("name:\nmax_batch_size: 8", (2, 1), "name has no value"),
        ("max_batch_size: 8 // eight\n", (1, 19), "comments begin with #"),
        ("/* eight */", (1, 1), "comments begin with #"),
        ('name: "x"\n<<<<<<< HEAD\n=======\n', (2, 1), "merge conflict"),
        ('\ufeffname: "x"', (1, 1), "byte order mark"),
        ("max_batch_size = 8", (1, 16), "write : instead of ="),
        ("name: x", (1, 7), "in quotes"),
        ('\nname: "\\377"', (2, 13), "write the character itself"),
        ("batch_output { batch_output { } }", (1, 16), "at the top level"),
        ("dynamic_batching {\n2,4,8\n}", (2, 1), "before it: preferred_batch_size: [ 2, 4, 8 ]"),
        ("instance_group { gpus: 0, 1 }", (1, 27), "missing before it: gpus: [ 0, 1 ]"),
        ('# above\nresponse_cache { enable: "x" }', (2, 26), "true or false, without quotes"),
        ("max_batch_size: 8\n2", (2, 1), "a field's name is missing before it"),
        ("input { dims: [-1][-1]\n}", (1, 20), "dims is one list: [ -1, -1 ], without the batch"),
        ('input [ { name: "x" } ] [ { } ]', (1, 27), "input is one list: join them"),
        (
            'ensemble_scheduling { step [ {\noutput_map { key: "a" }\n{ key: "b" }\n} ] }',
            *((3, 1), "write output_map before this {, or one list: output_map [ { }, { } ]"),
        ),
    ],
)
def test_a_text_that_is_something_else_is_recognised(text, place, hint):
    mistake = try_parse(text)
    assert (mistake.line, mistake.column) == place
    assert hint in mistake.hint
    assert "tritonclient" in hint or "tritonclient" not in mistake.hint


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("max_batch_size:\u00a08", 16, "U+00A0"),
        ("max_batch_size:\u30008", 16, "U+3000"),
        ("max_batch_size: +8", 17, "+8"),
        ("max_batch_size: 1_0", 17, "1_0"),
    ],
)
def test_syntax_that_only_python_accepts_is_a_mistake(text, column, said):
    mistake = try_parse(text)
    assert (mistake.line, mistake.column) == (1, column)
    assert said in mistake.message


@pytest.mark.parametrize(
    "text",
    [
        "# \u00a0 +8 1_0 - 1\nmax_batch_size: 8",
        'name: "\u3000 +8 1_0 - 1 # no comment"',
        "optimization { cuda { graph_spec { batch_size: 1 } } } parameters { key: 'a+1' }",
        "sequence_batching { direct { minimum_slot_utilization: 1e+0 } }",
    ],
)
def test_comments_and_strings_may_have_anything(text):
    assert not isinstance(try_parse(text), ParseMistake)


def test_a_minus_sign_may_stand_apart():
    assert list(parse("input { dims: [ - 1, -\n 2 ] }").input[0].dims) == [-1, -2]


@pytest.mark.parametrize(
    "text", ["enable: 01", "enable:\t001", "enable:\n01", "enable: # why\n01", "enable :01"]
)
def test_a_boolean_may_have_leading_zeros(text):
    before = f"response_cache {{ {text} }}  # enable: 01"
    assert parse(before).response_cache.enable
    after = before.replace(text, text.rstrip("01") + "false", 1)
    assert edit(before, {"response_cache.enable": False}) == after


@pytest.mark.parametrize("text", ["enable: 02", "enable: 08", "enable: 0_1"])
def test_malformed_boolean_is_a_mistake(text):
    assert isinstance(try_parse(f"response_cache {{ {text} }}"), ParseMistake)


def test_a_long_word_before_a_mistake_is_looked_at_at_once() -> None:
    text = f'backend: "{"y" * 200_000}"\ninput: \n: 1\n'
    assert isinstance(try_parse(text), ParseMistake)
    assert takes_at_most(100, lambda: try_parse(text))


TEXT = """# first
name: "a" 'b'  # pieces

instance_group [
  { kind: KIND_GPU },
  { count: 2 }
]
instance_group: < count: 3 >;
"""


def test_spans_are_those_of_the_source():
    root = build(TEXT)
    name, groups, last = root.fields
    assert TEXT[name.value.start : name.value.end] == "\"a\" 'b'"
    assert isinstance(groups.value, Items)
    assert [TEXT[m.start : m.end] for m in groups.messages] == [
        "{ kind: KIND_GPU }",
        "{ count: 2 }",
    ]
    assert TEXT[groups.value.commas[0]] == ","
    assert isinstance(last.value, Message)
    assert TEXT[last.start : last.end] == "instance_group: < count: 3 >;"
    assert len(elements(root, "instance_group")) == 3


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.stem)
def test_tokens_and_the_space_between_make_up_the_file(path):
    text = read(path)
    position = 0
    for token in tokenize(text):
        gap = text[position : token.start]
        assert all(not line or line.startswith("#") for line in map(str.strip, gap.split("\n")))
        assert text[token.start : token.end] == token.text
        position = token.end


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("name", (2, 1)),
        ("instance_group", (4, 1)),
        ("instance_group[1]", (6, 3)),
        ("instance_group[1].count", (6, 5)),
        ("instance_group[2].count", (8, 19)),
        ("instance_group[1].gpus", (6, 3)),
        ("dynamic_batching.preserve_ordering", (1, 1)),
    ],
)
def test_field_is_located_by_line_and_column(path, place):
    assert locate(TEXT, path) == place


@pytest.mark.parametrize(
    ("extra", "advice"),
    [
        (None, "update tritonclient: pip install -U 'tritonclient[grpc]'"),
        (object(), "leave this installation as it is, since its extra local needs its"),
    ],
)
def test_the_cure_for_an_old_client_does_not_break_the_extra_that_needs_it(
    monkeypatch, extra, advice
):
    monkeypatch.setattr("tuner.modelconfig.message.find_spec", lambda _: extra)
    assert newer_client().startswith(advice)


@pytest.mark.skipif(KNOWS_METRICS, reason="this tritonclient knows it")
def test_fields_of_a_newer_server_are_named_or_numbered():
    config = parse('instance_group { count: 1 } parameters { key: "a" value { } }')
    config.MergeFromString(b"\xd2\x01\x00\xda\x01\x00")
    config.ensemble_scheduling.MergeFromString(b"\x10\x04")
    assert unknown_fields(config) == [
        "model_metrics",
        "ModelConfig's field 27",
        "max_inflight_requests",
    ]
