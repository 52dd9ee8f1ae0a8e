"""Shares of a matrix: a step that selects cells of another share is refused before the first trial runs."""

import pytest

from prozess.campaigns.campaign_plan import CampaignDirectory
from prozess.campaigns.matrix_layout import MatrixLayout, parse_matrix
from prozess.campaigns.matrix_runner import begin_matrix
from prozess.harness.errors import BadInput


def layout_of(cells):
    step = {"name": "some", "after": {"condition": "acked", "count": 1, "cells": cells}}
    document = {
        "name": "m",
        "title": "t",
        "matrix": {
            "strength": 2,
            "cells_per_trial": {"log": 1},
            "axes": {"variant.metadata_mode": ["kraft-isolated", "kraft-combined"]},
            "schedules": [{"name": "one", "title": "t", "steps": [step]}],
        },
        "workloads": [{"kind": "log", "axes": {"producer.acks": ["1", "all"]}}],
    }
    return MatrixLayout(parse_matrix(document, source="m.toml"))


def test_a_step_whose_cells_are_in_another_share_is_refused_with_the_way_out():
    with pytest.raises(
        BadInput, match=r"m\.toml, trial \d+: Step 'some': no cell matches .* change matrix.cells_per_trial"
    ):
        layout_of({"producer.acks": "1"}).check()


def test_a_matrix_whose_steps_find_cells_in_every_share_is_accepted():
    layout_of({"workload": "log"}).check()


def test_what_this_machine_lacks_is_stated_once_and_no_trial_begins(tmp_path):
    def lacks(plan):
        raise BadInput(f"{plan.trial} needs JPype.")

    with pytest.raises(BadInput, match=r"needs JPype\."):
        begin_matrix(layout_of({"workload": "log"}), CampaignDirectory(tmp_path / "results"), refuse=lacks)
    assert not (tmp_path / "results").exists()
