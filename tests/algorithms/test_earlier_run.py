"""The run and the checkpoint of an earlier hive (commit 587aee2) are refused in one sentence, with a way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hive
from hive.config import load_config
from hive.errors import ConfigError, RecordError
from hive.training import Blueprint

EARLIER = Path(__file__).parent / "earlier_run"
POLICY = EARLIER / "checkpoints" / "000016"


def test_a_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="is of an earlier hive, whose runs this one does not read") as caught:
        load_config(EARLIER / "resolved.toml")
    assert caught.value.hint == "start a new run with the config.toml beside it"


def test_a_policy_is_refused_where_it_is_loaded_and_where_a_run_begins_with_it() -> None:
    init = f"run.init_from={json.dumps(str(POLICY))}"
    begin = load_config("run.toml", [init, "network.middleware=[4]"], text='[env]\nid = "Pendulum-v1"\n')
    for use in (lambda: hive.load(str(POLICY)), lambda: Blueprint(begin)):
        with pytest.raises(RecordError, match="is of an earlier hive, whose policies this one does not read") as caught:
            use()
        assert caught.value.hint == "train again, with the config.toml of its run"
