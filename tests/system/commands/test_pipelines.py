"""The hook of pre-commit, the action of GitHub and the template of GitLab do what docs/pipelines.md says: their own scripts
are carried out here, as those programs carry them out."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.paths import EXAMPLES, ROOT

BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
"""How GitHub's runner starts a script whose shell is bash."""
PAYMENTS = [f"--{kind} {EXAMPLES}/payments/{kind}.properties" for kind in ("producer", "topic", "consumer")]
SAFE = " ".join([*PAYMENTS, f"--broker {EXAMPLES}/payments/server.properties", "--commits sync-after"])
WEAK = f"--producer {EXAMPLES}/clickstream/producer.yaml --compose {EXAMPLES}/clickstream/compose.yaml --strict"
INPUT = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")
LIMIT_S = 120


def carried_out(words, where, **environment):
    """What a command does that finds `prozess` where it is installed here."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words, cwd=where, env=os.environ | {"PATH": path} | environment, capture_output=True, text=True, timeout=LIMIT_S
    )


def blocks(page):
    """The YAML of a page."""
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]


# The hook.


@pytest.fixture(scope="module")
def hook():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    return hook


def test_the_hook_has_what_pre_commit_asks_for_and_the_page_names_it(hook):
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert hook["language"] == "python"
    (repository,) = next(block for block in blocks(ROOT / "docs" / "pipelines.md") if isinstance(block, list))
    assert [used["id"] for used in repository["hooks"]] == [hook["id"]]


@pytest.mark.parametrize(
    ("arguments", "code"), [(SAFE, 0), (WEAK, 1), (f"--producer {EXAMPLES}/payments/nothing", 254)]
)
def test_the_hook_passes_what_is_promised_and_fails_what_is_weak(hook, tmp_path, arguments, code):
    done = carried_out([*shlex.split(hook["entry"]), *shlex.split(arguments)], tmp_path)
    assert done.returncode == code, done.stdout + done.stderr


# The action.


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load((EXAMPLES / "pipelines" / "action.yml").read_text("utf-8"))


def step(action, name):
    (found,) = [step for step in action["runs"]["steps"] if step["name"] == name]
    return found


def run_step(action, name, where, **inputs):
    """A step as a runner carries it out: with its environment, in which inputs are filled in, and a file for the summary."""
    defaults = {key: value.get("default") for key, value in action["inputs"].items()} | inputs
    own = step(action, name)
    environment = {key: INPUT.sub(lambda found: defaults[found[1]], value) for key, value in own["env"].items()}
    assert "${{" not in own["run"], "an input within a script could be carried out"
    return carried_out([*BASH, own["run"]], where, GITHUB_STEP_SUMMARY=str(where / "summary.md"), **environment)


def test_the_action_is_composite_and_each_step_says_its_shell(action):
    assert action["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in action["runs"]["steps"])
    assert action["inputs"]["arguments"]["required"]
    assert step(action, "Install prozess")["run"].startswith("python -m pip install")


def test_the_workflow_of_the_page_gives_the_action_its_inputs(action):
    (workflow,) = [block for block in blocks(ROOT / "docs" / "pipelines.md") if "jobs" in block]
    (used,) = [step for step in workflow["jobs"]["kafka"]["steps"] if "pipelines" in step["uses"]]
    assert (ROOT / used["uses"].split("@")[0].partition("/prozess/")[2] / "action.yml").is_file()
    assert used["with"].keys() <= action["inputs"].keys()


def test_the_action_annotates_writes_a_summary_and_leaves_sarif_before_it_fails(action, tmp_path):
    done = run_step(action, "Validate", tmp_path, arguments=WEAK)
    assert done.returncode == 1, done.stdout + done.stderr
    sarif = json.loads((tmp_path / "prozess.sarif").read_text("utf-8"))
    assert sarif["version"] == "2.1.0"
    assert (tmp_path / "summary.md").read_text("utf-8").strip()
    assert sarif["runs"][0]["results"]
    assert re.search(r"^::(?:error|warning|notice) ", done.stdout, re.MULTILINE)


def test_the_action_compares_a_change_without_a_number_of_minutes(action, tmp_path):
    done = run_step(action, "Validate", tmp_path, arguments=f"--old {EXAMPLES}/payments --new {EXAMPLES}/payments")
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert json.loads((tmp_path / "prozess.sarif").read_text("utf-8"))["version"] == "2.1.0"


def test_an_argument_of_the_action_is_a_word_and_no_command(action, tmp_path):
    done = run_step(action, "Validate", tmp_path, arguments="--producer '$(touch done)`touch done`; touch done'")
    assert done.returncode == 254
    assert "touch done" in done.stderr
    assert not (tmp_path / "done").exists()


# The template.


@pytest.fixture(scope="module")
def template():
    return yaml.safe_load((EXAMPLES / "pipelines" / "gitlab-ci.yml").read_text("utf-8"))


def run_job(template, name, where, **variables):
    """The script of a job, with the variables of the template."""
    defaults = {key: str(value) for key, value in template["variables"].items()} | variables
    return carried_out([*BASH, "\n".join(template[name]["script"])], where, **defaults)


def test_the_job_of_merge_requests_reports_as_junit_and_fails_by_the_exit_code(template, tmp_path):
    done = run_job(template, "prozess validate", tmp_path, PROZESS_ARGUMENTS=WEAK)
    assert done.returncode == 1, done.stdout + done.stderr
    report = tmp_path / template["prozess validate"]["artifacts"]["reports"]["junit"]
    assert ElementTree.parse(report).getroot().tag in ("testsuites", "testsuite")
    assert "promised" in done.stdout


def test_the_job_of_the_night_runs_a_campaign_into_what_is_kept(template):
    (command,) = template["prozess night"]["script"]
    assert shlex.split(command)[:2] == ["prozess", "run"]
    assert shlex.split(command)[-2:] == ["--runs", template["prozess night"]["artifacts"]["paths"][0].rstrip("/")]


def test_the_page_includes_the_template_with_variables_that_it_has(template):
    (used,) = [block for block in blocks(ROOT / "docs" / "pipelines.md") if "include" in block]
    assert (ROOT / used["include"][0]["file"]).is_file()
    assert used["variables"].keys() <= template["variables"].keys()
