"""Every file, folder and heading that README and docs name is there: a page that sends its reader nowhere is out of date."""

import re

import pytest

from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = "prozess|harness|clusters|nemesis|workloads|checkers|spark_checkers|tests|compose|trials|benchmarks|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./*-]*)`")
LINK = re.compile(r"\]\((?!\w+://)([^)\s#]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
MODULE = re.compile(rf"`prozess\.((?:{FOLDERS})(?:\.\w+)*)`")


def there(path):
    return any(ROOT.glob(path.rstrip("/")))


def module_there(name):
    """Whether it is a module, a package, or something in one of them."""
    path, owner = name.replace(".", "/"), name.rpartition(".")[0].replace(".", "/")
    return any(there(each) for each in (path, f"{path}.py", f"{owner}.py", f"{owner}/__init__.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_and_module_that_a_page_names_is_there(page):
    text = page.read_text("utf-8")
    missing = [path for path in PATH.findall(text) if not there(path)]
    missing += [name for name in MODULE.findall(text) if not module_there(name)]
    assert not missing


def anchors(page):
    """The anchors of a page's headings, as GitHub and mkdocs make them, and those that the page itself sets."""
    text = page.read_text("utf-8")
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text))
    return {*plain, *re.findall(r'id="([^"]+)"', text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_heading_to_which_a_page_leads_is_there(page):
    links = LINK.findall(page.read_text("utf-8"))
    assert not [
        f"{name}#{anchor}"
        for name, anchor in links
        if (target := page.parent / name if name else page).suffix == ".md" and anchor not in anchors(target)
    ]
