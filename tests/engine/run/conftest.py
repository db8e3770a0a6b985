"""A device that is none, for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.engine.run.fake_device import FakeDevice


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """What every engine of this test finds when it looks for a GPU."""
    made = FakeDevice()
    monkeypatch.setattr(
        "agentkv.engine.parts.find_device", lambda name: made if name != "cpu" else None
    )
    return made
