"""Chromium for tests, driven through its driver, and what is checked of every page in it.

It needs the environment that scripts/setup.sh --page makes. Where there is none, the test says so and ends
with 77, which ctest takes as skipped.
"""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import unittest

from pages import ROOT

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))


def enter_environment():
    """Goes on in the Python that has the packages; ends the process as skipped where there is none."""
    python = os.environ.get("DSTUNE_PAGE_PYTHON") or os.path.join(ROOT, "build", "page", "bin", "python")
    missing = [what for what, is_there in (
        ("environment in build/page", os.access(python, os.X_OK)),
        ("chromium", shutil.which("chromium")), ("chromedriver", shutil.which("chromedriver"))) if not is_there]
    if missing:
        print(f"SKIPPED: there is no {' and no '.join(missing)}. scripts/setup.sh --page makes what this test needs.")
        sys.exit(SKIPPED)
    if importlib.util.find_spec("selenium") is None:
        if os.environ.get("DSTUNE_PAGE_ENTERED"):
            sys.exit(f"{python} has no selenium: delete build/page and run scripts/setup.sh --page")
        os.environ["DSTUNE_PAGE_ENTERED"] = "1"
        os.execv(python, [python, "-B", *sys.argv])


def axe_source():
    """axe-core as the package axe-playwright-python bundles it; the package itself is not imported."""
    folder = importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]
    with open(os.path.join(folder, "axe.min.js"), encoding="utf-8") as file:
        return file.read()


class Browser:
    def __init__(self):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        self.folder = tempfile.mkdtemp(prefix="dstune-page-")
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--disable-background-networking", "--no-first-run", f"--user-data-dir={self.folder}/profile"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(60)
        self.axe = axe_source()

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, html):
        path = os.path.join(self.folder, f"{name}.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(html)
        return path

    def window(self, width, scheme="light", media=""):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 844 if width < 500 else 900, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def open(self, path):
        """Opens the page and waits until it is drawn."""
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(f"file://{path}")
        self.drawn()

    def drawn(self):
        self.later("requestAnimationFrame(() => requestAnimationFrame(() => done()))")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def later(self, script, *arguments):
        """A script that calls done(result)."""
        return self.driver.execute_async_script("const done = arguments[arguments.length - 1];" + script, *arguments)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def box(self, selector):
        return self.run("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)

    def all(self, selector, expression="one.textContent"):
        """A value of every element."""
        return self.run(f"return [...document.querySelectorAll(arguments[0])].map(one => {expression})", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def keys(self, *keys):
        """Keys to what has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def paste(self):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys("v").key_up(Keys.CONTROL).perform()

    def messages(self):
        """Lines that the page wrote on the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def foreign_requests(self):
        """Addresses that were asked for beside the page itself."""
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        return [url for url in asked if not url.startswith(("file:///", "data:"))]

    def violations(self):
        """Findings of axe that are serious or critical."""
        if not self.run("return typeof axe === 'object'"):
            self.run(self.axe)
        found = self.later("""axe.run(document, {resultTypes: ['violations']}).then(result => done(
            result.violations.map(({impact, id, nodes}) => `${impact}: ${id}: ${nodes.length} x `
                + `${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`)),
            error => done(['serious: axe: ' + error]))""")
        return [one for one in found if one.startswith(("serious", "critical"))]


class PageTest(unittest.TestCase):
    """Tests that share a browser."""

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def expect_sound(self, path, width, scheme):
        """All that must hold of any page in any window."""
        browser = self.browser
        browser.window(width, scheme)
        browser.open(path)
        self.assertEqual(browser.messages(), [])
        self.assertEqual(browser.foreign_requests(), [])
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(wide[0], wide[1], "the page is wider than its window")
        self.assertEqual(browser.violations(), [])
        # No text of the data is taken for HTML: these are all the scripts, and there is no picture.
        self.assertEqual(browser.run("""return [document.scripts.length, document.images.length,
            document.querySelectorAll('main script, b, iframe').length, document.querySelectorAll('h1').length]"""),
            [2, 0, 0, 1])
        self.assertNotIn("taken", browser.driver.title.split(":")[0])
        unreachable = browser.run("""return [...document.querySelectorAll('.scroll, pre')].filter(one =>
            one.tabIndex !== 0 || one.getAttribute('role') !== 'region' || !one.getAttribute('aria-label'))
            .map(one => one.outerHTML.slice(0, 200))""")
        self.assertEqual(unreachable, [], "parts that scroll have no name or no place among what keys reach")
        unnamed = browser.run("""return [...document.querySelectorAll('.plot svg')].filter(one =>
            one.getAttribute('role') !== 'img' || !one.getAttribute('aria-label')).length""")
        self.assertEqual(unnamed, 0, "figures without words")

    def expect_valid(self, html):
        import html5lib

        parser = html5lib.HTMLParser()
        parser.parse(html)
        self.assertEqual([(place, code, what) for place, code, what in parser.errors], [])
