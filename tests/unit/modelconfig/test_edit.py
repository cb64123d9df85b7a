from __future__ import annotations

import pytest
from builders.configs import GOOD, case, read

from tuner.errors import SpecError
from tuner.modelconfig import edit as edit_module
from tuner.modelconfig.edit import EditError, edit, unified_diff
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import with_fields
from tuner.modelconfig.schema import same_config

FIELDS = {
    "max_batch_size": 64,
    "dynamic_batching.preferred_batch_size": (16, 64),
    "dynamic_batching.max_queue_delay_microseconds": 250,
    "parameters.threads": 2,
    "response_cache.enable": True,
}


def changes(before, after):
    """The lines of the diff, without headers and context."""
    lines = unified_diff(before, after, "config.pbtxt").splitlines()
    return [line for line in lines[2:] if line[0] in "+-"]


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.stem)
def test_every_good_config_can_be_edited_back_and_forth(path):
    text = read(path)
    fields = {p: v for p, v in FIELDS.items() if "dynamic" not in p or not other_scheduler(text)}
    wanted = with_fields(parse(text), fields)
    edited = edit(text, fields)
    assert same_config(parse(edited), wanted)
    assert edit(edited, fields) == edited
    assert comments(edited) == comments(text)
    cleared = edit(edited, dict.fromkeys(fields))
    assert same_config(parse(cleared), with_fields(wanted, dict.fromkeys(fields)))


def other_scheduler(text):
    return parse(text).WhichOneof("scheduling_choice") not in (None, "dynamic_batching")


def comments(text):
    return [line.split("#", 1)[1] for line in text.splitlines() if '"' not in line and "#" in line]


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.stem)
def test_no_fields_no_change(path):
    text = read(path)
    assert edit(text, {}) == text


def test_a_value_is_replaced_where_it_stands():
    text = case("published/bert-onnx")
    edited = edit(
        text,
        {
            "instance_group.count": 4,
            "dynamic_batching.preferred_batch_size": (8,),
            "dynamic_batching.max_queue_delay_microseconds": 100,
        },
    )
    assert changes(text, edited) == [
        "-    count: 2         # 2 model örneği (concurrent execution)",
        "+    count: 4         # 2 model örneği (concurrent execution)",
        "-  preferred_batch_size: [ 8, 16, 32 ]",
        "-  max_queue_delay_microseconds: 5000",
        "+  preferred_batch_size: [ 8 ]",
        "+  max_queue_delay_microseconds: 100",
    ]


def test_equal_values_written_differently_are_left_alone():
    text = 'name: "x" max_batch_size: 0x10 dynamic_batching { preferred_batch_size: 4 }'
    fields = {"max_batch_size": 16, "dynamic_batching.preferred_batch_size": (4,)}
    assert edit(text, {**fields, "dynamic_batching.preserve_ordering": False}) == text


def test_a_field_is_removed_with_its_line_and_its_comment():
    text = case("good/comments")
    edited = edit(text, {"dynamic_batching.max_queue_delay_microseconds": None})
    assert changes(text, edited) == ["-  max_queue_delay_microseconds: 100   # 0.1 ms"]


def test_a_message_is_removed_and_the_comments_around_it_stay():
    text = case("good/comments")
    edited = edit(text, {"dynamic_batching": None})
    assert edited.endswith("# ... before the batcher\n# last line\n")


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("", {"max_batch_size": 8}, "max_batch_size: 8\n"),
        ("# c", {"max_batch_size": 8}, "# c\nmax_batch_size: 8"),
        ('name: "x"', {"max_batch_size": 8}, 'name: "x"\nmax_batch_size: 8'),
        (
            'name: "x" backend: "b"',
            {"max_batch_size": 8},
            'name: "x" backend: "b" max_batch_size: 8',
        ),
        ("a: 1".replace("a", "max_batch_size"), {"max_batch_size": None}, ""),
        (
            "dynamic_batching { }\n",
            {"dynamic_batching.max_queue_delay_microseconds": 5},
            "dynamic_batching {\n  max_queue_delay_microseconds: 5\n}\n",
        ),
        (
            'name: "x" dynamic_batching{}',
            {"dynamic_batching.max_queue_delay_microseconds": 5},
            'name: "x" dynamic_batching{ max_queue_delay_microseconds: 5 }',
        ),
        (
            "dynamic_batching {\n    # why\n}\n",
            {"dynamic_batching.max_queue_delay_microseconds": 5},
            "dynamic_batching {\n    # why\n  max_queue_delay_microseconds: 5\n}\n",
        ),
        (
            "dynamic_batching {\n\tpreferred_batch_size: 2 # two\n}",
            {"dynamic_batching.default_queue_policy.max_queue_size": 5},
            (
                "dynamic_batching {\n\tpreferred_batch_size: 2 # two\n"
                "\tdefault_queue_policy {\n\t\tmax_queue_size: 5\n\t}\n}"
            ),
        ),
        (
            "dynamic_batching { preferred_batch_size: 2 preserve_ordering: true }",
            {"dynamic_batching.preferred_batch_size": None},
            "dynamic_batching { preserve_ordering: true }",
        ),
        (
            "dynamic_batching { preferred_batch_size: 2, preserve_ordering: true; }",
            {"dynamic_batching.preserve_ordering": None},
            "dynamic_batching { preferred_batch_size: 2, }",
        ),
        (
            "dynamic_batching { preferred_batch_size: [2,4] }",
            {"dynamic_batching.preferred_batch_size": (8, 16)},
            "dynamic_batching { preferred_batch_size: [8, 16] }",
        ),
        (
            "dynamic_batching {\n  preferred_batch_size: 2\n  preferred_batch_size: 4 # four\n}",
            {"dynamic_batching.preferred_batch_size": (8, 16)},
            "dynamic_batching {\n  preferred_batch_size: [ 8, 16 ]\n}",
        ),
        (
            "instance_group [ { kind: KIND_GPU }, { kind: KIND_CPU } ]",
            {"instance_group[0]": None},
            "instance_group [ { kind: KIND_CPU } ]",
        ),
        (
            "instance_group [\n  { kind: KIND_GPU },\n  { kind: KIND_CPU } # cpu\n]\n",
            {"instance_group[1]": None},
            "instance_group [\n  { kind: KIND_GPU }\n]\n",
        ),
        (
            'name: "x"\ninstance_group [ { kind: KIND_GPU } ]\n',
            {"instance_group": None},
            'name: "x"\n',
        ),
        (
            "instance_group [\n  {\n    kind: KIND_GPU\n  } # gpu\n]\n",
            {"instance_group[kind=KIND_CPU].count": 2},
            (
                "instance_group [\n  {\n    kind: KIND_GPU\n  }, # gpu\n"
                "  {\n    kind: KIND_CPU\n    count: 2\n  }\n]\n"
            ),
        ),
        (
            "instance_group { kind: KIND_GPU }\n",
            {"instance_group[kind=KIND_CPU].count": 2},
            (
                "instance_group { kind: KIND_GPU }\n"
                "instance_group {\n  kind: KIND_CPU\n  count: 2\n}\n"
            ),
        ),
        (
            "instance_group: [ ]\n",
            {"instance_group[gpus=1].count": 2},
            "instance_group: [ { gpus: [ 1 ] count: 2 } ]\n",
        ),
        (
            'backend: "b"\ndynamic_batching { }\n',
            {"instance_group.count": 2},
            'backend: "b"\ndynamic_batching { }\ninstance_group [\n  {\n    count: 2\n  }\n]\n',
        ),
        (
            (
                'parameters { key: "a" value { string_value: "1" } }\n'
                'parameters { key: "a" value { string_value: "2" } }\n'
            ),
            {"parameters.a": 3},
            (
                'parameters { key: "a" value { string_value: "1" } }\n'
                'parameters { key: "a" value { string_value: "3" } }\n'
            ),
        ),
        (
            'parameters [ { key: "a" }, { key: "b" }, { key: "a" } ]\nname: "x"\n',
            {"parameters.a": None},
            'parameters [ { key: "b" } ]\nname: "x"\n',
        ),
        (
            'parameters { key: "a" }\n',
            {"parameters.a": "x"},
            'parameters { key: "a" value { string_value: "x" } }\n',
        ),
        (
            'metric_tags { key: "a" value: "1" }\n',
            {"metric_tags.a": 'q"'},
            'metric_tags { key: "a" value: "q\\"" }\n',
        ),
        (
            'default_model_filename: "a"  # first\n                        "b"  # second\n',
            {"default_model_filename": "c"},
            'default_model_filename: "c"  # second\n',
        ),
        (
            "max_batch_size: 0 max_batch_size: 8",
            {"max_batch_size": 4},
            "max_batch_size: 0 max_batch_size: 4",
        ),
        (
            "max_batch_size: 8\r\n",
            {"response_cache.enable": True},
            "max_batch_size: 8\r\nresponse_cache {\r\n  enable: true\r\n}\r\n",
        ),
        (
            'name:"x"max_batch_size:8 backend:"b"',
            {"max_batch_size": None, "platform": "p"},
            'name:"x" platform: "p" backend:"b"',
        ),
        (
            "version_policy { all { } }",
            {"version_policy.all": None, "version_policy.latest.num_versions": 2},
            "version_policy {\n  latest {\n    num_versions: 2\n  }\n}",
        ),
    ],
)
def test_edit_changes_the_field_and_keeps_every_other_byte(text, fields, expected):
    assert edit(text, fields) == expected


def test_new_blocks_are_set_off_where_the_file_does_so():
    text = 'name: "x"\n\ninput { name: "i" }\n\nparameters { }\n'
    edited = edit(text, {"response_cache.enable": True, "dynamic_batching.preserve_ordering": True})
    assert edited == (
        'name: "x"\n\ninput { name: "i" }\n\ndynamic_batching {\n  preserve_ordering: true\n}\n\n'
        "parameters { }\n\nresponse_cache {\n  enable: true\n}\n"
    )


def test_a_file_from_nothing_is_in_the_order_of_the_schema():
    edited = edit(
        "", {"response_cache.enable": True, "max_batch_size": 8, "dynamic_batching": True}
    )
    assert (
        edited == "max_batch_size: 8\ndynamic_batching { }\nresponse_cache {\n  enable: true\n}\n"
    )


def test_wrong_text_and_wrong_fields_are_spec_errors():
    with pytest.raises(SpecError, match=r"config\.pbtxt:1:1"):
        edit("nonsense: 1", {"max_batch_size": 1})
    with pytest.raises(SpecError, match="no field"):
        edit("", {"max_batchsize": 1})
    with pytest.raises(SpecError, match="exclude"):
        edit("sequence_batching { }", {"dynamic_batching": True})


def test_a_wrong_result_is_never_returned(monkeypatch):
    monkeypatch.setattr(edit_module, "_edit_field", lambda text, *_: text)
    with pytest.raises(EditError, match="max_batch_size"):
        edit("max_batch_size: 4", {"max_batch_size": 8})


def test_an_element_taken_out_twice_is_taken_out_once():
    text = "instance_group [ { count: 1 }, { count: 2 } ]\n"
    once = edit(text, {"instance_group[1]": None})
    assert once == "instance_group [ { count: 1 } ]\n"
    assert edit(once, {"instance_group[1]": None}) == once
    with pytest.raises(SpecError, match="only 1 element"):
        edit(once, {"instance_group[1].count": 3})


def test_a_minus_sign_that_stands_apart_goes_with_its_number():
    text = "input { dims: [ - 1, 8 ] }  # as it came\n"
    assert edit(text, {"input.dims": (4,)}) == "input { dims: [ 4 ] }  # as it came\n"
    assert edit("max_batch_size: - 1\n", {"max_batch_size": 4}) == "max_batch_size: 4\n"
    assert edit(text, {"max_batch_size": 4}).startswith("max_batch_size: 4") is False
    assert text in edit(text, {"max_batch_size": 4})


def test_equal_texts_have_no_diff():
    assert unified_diff("a\n", "a\n", "m/config.pbtxt") == ""


def test_diff_has_the_changed_line_alone():
    assert unified_diff("a: 1\nb: 2\n", "a: 1\nb: 3\n", "m/config.pbtxt") == (
        "--- a/m/config.pbtxt\n+++ b/m/config.pbtxt\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"
    )


def test_a_missing_final_newline_is_marked():
    diff = unified_diff("a", "b", "c")
    assert diff.endswith("-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n")


def test_line_endings_are_kept():
    assert "-a\r\n+b\r\n" in unified_diff("a\r\n", "b\r\n", "c")


def test_only_a_newline_ends_a_line():
    before = "# one\x85two\u2028three\x0cfour\r\nb: 2\n"
    lines = unified_diff(before, before.replace("2", "3"), "c").split("\n")
    assert lines[3:] == [" # one\x85two\u2028three\x0cfour\r", "-b: 2", "+b: 3", ""]


def test_an_accelerator_is_added_and_taken_out_again():
    accelerator = "optimization.execution_accelerators.cpu_execution_accelerator[name=openvino]"
    before = 'backend: "onnxruntime"\noptimization {\n  graph { level: 1 }  # fewer fusions\n}\n'
    added = edit(before, {accelerator: True})
    (openvino,) = parse(added).optimization.execution_accelerators.cpu_execution_accelerator
    assert openvino.name == "openvino"
    left = parse(edit(added, {accelerator: None})).optimization
    assert list(left.execution_accelerators.cpu_execution_accelerator) == []
    assert comments(added) == comments(before)


def test_optimization_profiles_are_written_as_the_text_that_they_are():
    before = 'platform: "tensorrt_plan"\ninstance_group [ { profile: [ "0" ] } ]  # one\n'
    after = edit(before, {"instance_group.profile": ("0", "1")})
    assert after == before.replace('[ "0" ]', '[ "0", "1" ]')
