"""What all tests share: the optional reference material, and no silent skips in CI."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest
from skips import ABSENT_MATERIAL, ALLOWED

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the repository; tests that read it skip without."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(ABSENT_MATERIAL)
    return folder


class _SkipsForMissingTools:
    """In CI a skip fails the run, but for absent reference material and unable machines."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in ALLOWED):
            self.reasons.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.reasons and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.reasons:
            terminalreporter.section("skips are failures in CI: install what these tests need")
            for reason in self.reasons:
                terminalreporter.write_line(reason)


def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it runs in the background ignore Ctrl-C, and so would the processes that
    # tests start and then interrupt. A handler, unlike that, is not inherited.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes is up to who else uses the machine.
    hypothesis.settings.register_profile(
        "any machine",
        hypothesis.settings(),
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("any machine")
    # A bound above the cost of a placement is wrong in whichever test it shows.
    config.addinivalue_line("filterwarnings", "error::railweave.placement.errors.BoundAboveCost")
    if os.environ.get("CI"):
        config.pluginmanager.register(_SkipsForMissingTools())
