from __future__ import annotations

from tuner.modelconfig.edit import unified_diff


def test_equal_texts_have_no_diff():
    assert unified_diff("a\n", "a\n", "m/config.pbtxt") == ""


def test_one_changed_line():
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
