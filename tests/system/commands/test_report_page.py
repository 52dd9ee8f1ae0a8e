"""report.html in a browser: what a person does with it works, by keyboard too, and nothing is loaded or complained of."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.campaigns.campaign_index import write_index
from prozess.campaigns.comparing.trends import write_trends
from prozess.exchange.commands import generate_history
from prozess.harness.impact.trends import Measure, NightOfTrial, Regression, Trends
from prozess.harness.report.reports import report_run
from prozess.harness.run_directory import RunDirectory
from tests.support.campaigns import a_campaign_of_every_kind
from tests.support.large_run import large_run

PLANTED = (
    "lost",
    "duplicate",
    "reordered",
    "dirty-read",
    "skipped",
    "aborted-read",
    "unprocessed",
    "commit-regression",
)
FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']"
WAIT_MS = 60_000
"""A busy machine draws slowly."""
expect.set_options(timeout=WAIT_MS)
PAPER_PX = 718
"""Of A4, upright, between Chromium's margins."""
LARGE_BYTES_MAX, LARGE_ELEMENTS_MAX = 2_500_000, 30_000


@pytest.fixture(scope="module")
def browser(need) -> Iterator[Browser]:
    need("chromium")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """A violated run with anomalies of every kind of workload."""
    out = tmp_path_factory.mktemp("planted") / "run"
    plant = ",".join(f"{name}=3" for name in PLANTED)
    kinds = ("log", "transactions", "group")
    generate_history(out, rows=12_000, partitions=2, plant=plant, workloads=kinds, seed=1)
    run = RunDirectory(out)
    judge_run(run, check_run(run, CheckOptions(engine="local")))
    report_run(run)
    return out / "report.html"


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """250 cells, 500 partitions, 100,000 sends, 12 faults."""
    run = large_run(tmp_path_factory.mktemp("large"))
    report_run(run)
    return run.path / "report.html"


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Page]]:
    """Open a report; at the end of the test the console must have been quiet, and nothing but the file asked for."""
    contexts, complaints, asked, opened = [], [], [], set()

    def open_it(report: Path, fragment: str = "", **options) -> Page:
        contexts.append(
            browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options)
        )
        contexts[-1].set_default_timeout(WAIT_MS)
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        opened.add(report.as_uri())
        page.goto(report.as_uri() + fragment)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url.partition("#")[0] for url in asked} <= opened


def shown_cells(page: Page) -> list[int]:
    found = page.locator("table.matrix tbody tr:visible").evaluate_all("rows => rows.map(row => row.id)")
    return [int(name.removeprefix("cell-")) for name in found]


def fragment(page: Page) -> str:
    return page.evaluate("location.hash")


def test_cells_are_filtered_by_verdict_guarantee_axis_and_text_and_the_address_keeps_it(open_page, large):
    page = open_page(large)
    assert len(shown_cells(page)) == 250
    page.select_option("[name=v]", "violated")
    assert shown_cells(page) == [49, 99, 149, 199, 249]
    expect(page.locator("#filtered")).to_have_text("5 of 250 cells")
    page.select_option("[name='a.producer.acks']", "all")
    assert shown_cells(page) == [149, 199, 249]
    page.reload()
    assert shown_cells(page) == [149, 199, 249]
    assert page.input_value("[name=v]") == "violated"
    page.click("[name=clear]")
    assert len(shown_cells(page)) == 250
    page.select_option("[name=g]", "lost")
    page.select_option("[name=o]", "permitted")
    assert len(shown_cells(page)) == 125
    page.fill("[name=q]", "ZSTD linger_ms_50")
    assert len(shown_cells(page)) == 5
    colleague = open_page(large, fragment(page))
    assert shown_cells(colleague) == shown_cells(page)


def test_counts_by_guarantee_lead_to_their_cells(open_page, large):
    page = open_page(large)
    counts = page.get_by_role("table", name="By anomaly")
    counts.get_by_role("row", name="duplicate").get_by_role("link", name="5", exact=True).click()
    assert shown_cells(page) == [49, 99, 149, 199, 249]
    assert (page.input_value("[name=g]"), page.input_value("[name=o]")) == ("duplicate", "violated")


def test_columns_sort_both_ways_the_worst_first(open_page, large):
    page = open_page(large)
    heading = page.locator("th[data-column='duplicate']")
    heading.get_by_role("button").click()
    assert shown_cells(page)[:6] == [49, 99, 149, 199, 249, 0]
    assert heading.get_attribute("aria-sort") == "ascending"
    page.locator("th[data-column='producer.delivery_timeout_ms']").get_by_role("button").click()
    assert page.locator("table.matrix tbody tr").first.locator("td").nth(3).inner_text() == "5000"
    page.locator("th[data-column='producer.delivery_timeout_ms']").get_by_role("button").click()
    assert page.locator("table.matrix tbody tr").first.locator("td").nth(3).inner_text() == "60000"
    assert heading.get_attribute("aria-sort") is None


def test_a_cell_opens_with_its_guarantees_partitions_and_clients_and_closes_to_where_it_was_opened(open_page, large):
    page = open_page(large)
    page.locator("a[href='#cell-49']").first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cell 49")
    expect(dialog.get_by_role("table", name="Anomalies of this cell").locator("tbody tr")).to_have_count(16)
    expect(dialog.get_by_role("table", name="Partitions").locator("tbody tr")).to_have_count(2)
    expect(dialog.locator("figure svg rect.k2").first).to_be_attached()
    assert dialog.get_by_role("table", name="Clients").locator("tbody tr").count() > 0
    assert fragment(page) == "#cell-49"
    page.reload()
    expect(page.get_by_role("dialog")).to_contain_text("Cell 49")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).not_to_be_visible()
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#cell-49"


def test_from_a_cell_one_comes_to_the_witnesses_of_its_anomalies(open_page, large):
    page = open_page(large, "#cell-49")
    page.get_by_role("dialog").get_by_role("link", name="duplicate").click()
    expect(page.locator("dialog")).not_to_be_visible()
    expect(page.locator("#w-49-duplicate")).to_be_in_viewport()
    assert fragment(page) == "#w-49-duplicate"


def test_a_fault_tells_what_it_hit_and_shows_itself_in_the_timeline(open_page, large):
    page = open_page(large)
    page.locator("svg a.fault").nth(3).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    for said in (
        "power-loss broker-1",
        "step 3",
        "36.000 s",
        "the process is gone",
        "acknowledged nothing because of it",
    ):
        expect(dialog).to_contain_text(said)
    dialog.get_by_role("button", name="Show it in the timeline").click()
    expect(page.locator("dialog")).not_to_be_visible()
    assert fragment(page) == "#timeline?t=28.00%2C41.00"
    assert page.input_value("[name=from]") == "28.00"


def test_anomalies_near_a_fault_are_linked_from_it(open_page, large):
    page = open_page(large, "#fault-0")
    page.get_by_role("dialog").get_by_role("link", name="duplicate in cell 49").click()
    expect(page.locator("#w-49-duplicate")).to_be_visible()


def test_the_timeline_is_zoomed_by_dragging_typing_and_buttons_and_the_address_keeps_it(open_page, large):
    page = open_page(large)
    whole = page.input_value("[name=from]"), page.input_value("[name=to]")
    plot = page.locator("#figure-0 svg[role=img]").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 40, steps=3)
    page.mouse.up()
    begin, end = map(float, re.search(r"t=([\d.]+)%2C([\d.]+)", fragment(page)).groups())
    assert 20 < begin < end < 60
    page.reload()
    assert float(page.input_value("[name=from]")) == begin
    page.fill("[name=from]", "40")
    page.press("[name=from]", "Enter")
    assert float(page.input_value("[name=from]")) == 40
    page.click("[name=whole]")
    assert (page.input_value("[name=from]"), page.input_value("[name=to]")) == whole
    assert "t=" not in fragment(page)


def test_the_keyboard_reads_the_timeline_moment_by_moment_and_as_a_table(open_page, large):
    page = open_page(large)
    page.focus("[name=moment]")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#timeline-reported")).to_contain_text("acknowledged per s: acks=1")
    expect(page.locator("#timeline-reported")).to_contain_text("faults: kill broker-1")
    page.focus("[name=table]")
    page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Numbers of the timeline")
    expect(table.locator("tbody tr")).to_have_count(60)
    expect(table).to_contain_text("power-loss broker-1")


def test_everything_that_acts_is_reached_by_the_tab_key(open_page, planted):
    page = open_page(planted)
    wanted = page.locator(FOCUSABLE).evaluate_all(
        "all => all.filter(e => e.checkVisibility() && !e.disabled).map((e, i) => (e.dataset.nth = i)).length"
    )
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.nth"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body")
    assert {str(n) for n in range(wanted)} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("where", ["", "#cell-0"])
def test_nothing_is_inaccessible_in_the_eyes_of_axe(open_page, planted, scheme, where):
    page = open_page(planted, where, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('main details').forEach(details => (details.open = true))")
    found = Axe().run(page).response
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}, "it looked"
    assert [(v["id"], v["nodes"][0]["html"][:200], v["nodes"][0]["failureSummary"]) for v in found["violations"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_trends_are_accessible_too(browser, tmp_path, scheme):
    nights = tuple(NightOfTrial("safe", f"2026-01-0{day}", 4, day % 2, 1, (("lost", 9),)) for day in (1, 2))
    measures = tuple(Measure("safe", f"2026-01-0{day}", "recovery", 9.0 * day, "ms", 3, True) for day in (1, 2))
    path = write_trends(
        Trends(nights, measures, 9, 1), [Regression("safe", "2026-01-02", "worse")], tmp_path / "trends.html"
    )
    with browser.new_context(color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        assert Axe().run(page).response["violations"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_index_of_a_campaign_is_accessible_fits_a_phone_and_is_walked_by_keyboard(open_page, tmp_path, scheme):
    directory = a_campaign_of_every_kind(tmp_path / "campaign")
    index = write_index(directory, directory.begun(), directory.attempts())
    page = open_page(index, color_scheme=scheme, viewport={"width": 390, "height": 844})
    assert Axe().run(page).response["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Tab")
    reached = []
    while page.evaluate("document.activeElement !== document.body"):
        reached.append(page.evaluate("document.activeElement.getAttribute('href') || document.activeElement.ariaLabel"))
        page.keyboard.press("Tab")
    assert reached == [
        *("Verdicts by trial and variant", "#no-1-0", "#no-0-0", "runs/bad/report.html", "#no-2-1"),
        *("Every run", "runs/bad/report.html", "runs/good/report.html"),
    ]


@pytest.mark.parametrize("anomaly", ["w-0-lost", "w-1-aborted-read", "w-2-unprocessed"])
def test_the_story_of_a_witness_is_drawn_beside_its_list(open_page, planted, anomaly):
    page = open_page(planted, f"#{anomaly}")
    story = page.locator(f"#{anomaly} details.around").first
    story.evaluate("story => (story.open = true)")
    marks = story.locator("svg .mark")
    expect(marks).to_have_count(story.locator("li").count())
    marks_y = marks.evaluate_all("all => all.map(e => e.getBoundingClientRect().y)")
    rows_y = story.locator("li").evaluate_all("all => all.map(e => e.getBoundingClientRect().y)")
    assert all(abs(mark + 8 - (row + 11)) < 4 for mark, row in zip(marks_y, rows_y, strict=True))
    times = [float(t.removesuffix(" s")) for t in story.locator("time").all_inner_texts()]
    assert times == sorted(times)


def test_without_scripts_verdict_cells_stories_and_numbers_can_be_read(open_page, planted):
    page = open_page(planted, java_script_enabled=False)
    text = page.locator("body").inner_text()
    for said in ("violated", "The timeline in numbers", "Partitions", "Clients", "Charts need scripts"):
        assert said in text, said
    assert not page.locator("#filters").is_visible()
    assert "has not found" in page.locator("#w-0-lost ol.story").first.text_content()


def test_a_phone_scrolls_tables_not_the_page(open_page, planted):
    page = open_page(planted, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_on_paper_nothing_is_cut_off_and_charts_have_the_width_of_the_page(open_page, planted):
    page = open_page(planted)  # drawn for a screen, then printed
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER_PX, "height": 1000})
    beyond = """() => [...document.querySelectorAll('main table, main svg, main pre, main li')]
        .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => [e.getBoundingClientRect().right, e.outerHTML.slice(0, 90)])"""
    assert page.evaluate(beyond) == []
    chart = page.locator("#figure-0 .panel > svg").first.bounding_box()
    assert chart is not None
    assert chart["width"] > PAPER_PX - 2
    texts = page.locator("#figure-0 svg text").all_text_contents()
    assert "0" in texts
    assert "-0" not in texts


def test_a_large_report_is_small_and_has_few_elements(open_page, large):
    page = open_page(large)
    elements = page.evaluate("document.querySelectorAll('*').length")
    assert large.stat().st_size < LARGE_BYTES_MAX, f"{large.stat().st_size:,} bytes"
    assert elements < LARGE_ELEMENTS_MAX, f"{elements:,} elements"


def test_on_a_phone_the_verdict_is_beside_the_cell_and_a_wider_table_says_so(open_page, large):
    page = open_page(large, "#cell-49", viewport={"width": 390, "height": 800})
    verdict = page.locator("#cell-49 td").first
    assert verdict.inner_text() == "✗ violated"
    box = verdict.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    matrix = page.get_by_role("group", name="Cells of workload log")
    hint = matrix.locator("xpath=preceding-sibling::p[1]")
    expect(hint).to_have_text("This table goes on to the right: scroll it.")
    heading = matrix.locator("thead th").nth(0)
    matrix.evaluate("frame => { frame.scrollLeft = 300 }")
    left = heading.bounding_box()
    assert left is not None
    assert left["x"] < 60, "the number of the cell stays in view"


def test_what_was_seen_is_one_click_from_the_verdict_and_the_command_can_be_copied(open_page, planted):
    page = open_page(planted, permissions=["clipboard-read", "clipboard-write"])
    first = page.get_by_role("list", name="What was seen").get_by_role("link").first
    assert "violated" in first.inner_text()
    first.click()
    anomaly = fragment(page).removeprefix("#")
    expect(page.locator(f"#{anomaly}")).to_be_in_viewport()
    assert page.locator("pre.copied").count() == page.get_by_role("button", name="Copy").count()
