"""What deploy/ says holds: the unit calls commands that exist, with variables the file sets."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

from click.testing import CliRunner
from railweave.scheduler.cli.main import railweave

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "railweave.service")
    return parser


def variables() -> dict[str, str]:
    lines = (DEPLOY / "railweave.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_unit_runs_commands_and_options_that_exist() -> None:
    for key in ("ExecStart", "ExecStop"):
        program, verb, *rest = shlex.split(unit()["Service"][key])
        assert program.endswith("/bin/railweave")
        help_text = CliRunner().invoke(railweave, [verb, "--help"])
        assert help_text.exit_code == 0, help_text.output
        for word in rest:
            if word.startswith("--"):
                assert word in help_text.output


def test_the_unit_uses_only_variables_that_the_environment_file_sets() -> None:
    used = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "railweave.service").read_text()))
    assert used <= set(variables())


def test_the_environment_file_turns_authentication_on_and_holds_no_token() -> None:
    assert variables()["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in variables()
    assert variables()["RAY_AUTH_TOKEN_PATH"].startswith("/")


def test_the_page_names_verbs_that_exist() -> None:
    named = set(re.findall(r"(?:`|\$ )railweave ([a-z]+)", (DEPLOY / "README.md").read_text()))
    for verb in named:
        assert CliRunner().invoke(railweave, [verb, "--help"]).exit_code == 0, verb
