from __future__ import annotations

import pytest

from tuner.hiding import hidden_command, without_passwords

#: Stands for any password.
MARK = "hunter2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://tuner:hunter2@db/x", "postgresql://tuner:***@db/x"),
        ("redis://:hunter2@h:6379", "redis://:***@h:6379"),
        ("mysql+pymysql://u:p@ss@hunter2@db", "mysql+pymysql://u:***@db"),
        ("a://u:hunter2/with a space@db", "a://u:***@db"),
        ("a://u:2024-hunter2@db:5432/x", "a://u:***@db:5432/x"),
        ("a://u:12345@db", "a://u:***@db"),
        ("postgresql://db/x?user=u&password=hunter2&a=b", "postgresql://db/x?user=u&password=***&a=b"),
        ("x://h?pass=hunter2&apikey=hunter2&auth=hunter2&private_key=hunter2", "x://h?pass=***&apikey=***&auth=***&private_key=***"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Dhunter2", "mssql+pyodbc:///?odbc_connect=***"),
        ("--storage=a://u:hunter2@db", "--storage=a://u:***@db"),
        ("cannot open 'a://u:hunter2@db':\nno b://v:hunter2@c", "cannot open 'a://u:***@db':\nno b://v:***@c"),
    ],
)  # fmt: skip
def test_a_password_in_a_url_is_hidden(text: str, expected: str) -> None:
    assert without_passwords(text) == expected
    assert MARK not in expected


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////data/study.db",
        "postgresql://tuner@db:5432/optuna",
        "http://127.0.0.1:8000/v2 did not answer; ask ops@example.com",
        "p99_latency <= 40ms at 300/s: no",
    ],
)
def test_text_without_a_password_stays_as_it_is(text: str) -> None:
    assert without_passwords(text) == text


def test_a_command_line_is_kept_without_its_passwords() -> None:
    command = hidden_command(["tune", "run", "a b.yaml", "--storage", "x://u:hunter2@db"])
    assert command == ("tune", "run", "a b.yaml", "--storage", "x://u:***@db")
