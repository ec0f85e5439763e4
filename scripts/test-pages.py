#!/usr/bin/env python3
"""`make test-pages`: the web pages in a headless Chromium, against a server of its own.

Usage: test-pages.py EXACAT-BINARY [--entries N | --short] [--shots DIRECTORY] [--only TEXT]
       test-pages.py --prepare

Installs Playwright and axe-core, both of a fixed version, into an environment of their own below target/. Chromium must be
installed (Debian: chromium), or CHROMIUM names it. Every page is checked by axe-core, at the width of a desktop and of a
phone, and must load without an error of the content security policy. Screenshots of every page are for people to look at.
--prepare only makes the environment.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

PACKAGES = ["playwright==1.65.2", "axe-playwright-python==0.1.8"]
HERE = pathlib.Path(__file__).resolve().parent
PLACE = HERE.parent / "target" / "test-pages"
# A directory of so many entries must be as quick as a small one.
ENTRIES = 1_000_000
ENTRIES_SHORT = 20_000
BATCH = 10_000
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 800}
HOSTILE = ["<script>document.title='broken'</script>".replace("/", "\\"), "\"><img src=x onerror=document.title='broken'>",
           "\u202egpj.exe", "שלום עולם.txt", "x" * 255, "tab\tand\nline", "{{7*7}}", "%2e%2e"]


def in_own_environment():
    """Goes on in an environment with the packages; makes it the first time."""
    python = PLACE / "bin" / "python"
    stamp = PLACE / "packages"
    if not stamp.exists() or stamp.read_text().split() != PACKAGES:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        stamp.write_text("\n".join(PACKAGES))
    if sys.argv[1:] == ["--prepare"]:
        sys.exit(0)
    if pathlib.Path(sys.prefix) != PLACE:
        os.execv(python, [str(python), *sys.argv])


in_own_environment()
from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import expect as expect_soon, sync_playwright  # noqa: E402

from clients_rig import Failed, expect, free_port, is_open, say, wait_until  # noqa: E402


class Service:
    """A server with a sample catalogue."""

    def __init__(self, exacat, place, entries):
        self.exacat, self.data, self.port = exacat, pathlib.Path(place) / "data", free_port()
        self.log = open(pathlib.Path(place) / "log", "wb")
        self.process = subprocess.Popen(
            [exacat, "--data", str(self.data), "serve", "--listen", "none", "--http", f"127.0.0.1:{self.port}", "--http-plain"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until("the server listens", lambda: is_open(self.port) and (self.data / "server.json").exists())
        self.token = (self.data / "admin.token").read_text().strip()
        self.run("se", "add", "DEMO::DISK::SE1", "--prefix", "root://se1.example.org:1094//data", "--https",
                 "https://se1.example.org/data")
        self.run("generate", "--entries", "2000")
        self.run("user", "add", "jane")
        self.jane = json.loads(self.run("--json", "token", "issue", "--user", "jane", "--lifetime", "1h"))["secret"]
        self.rest("PUT", "/directories/names?parents=true")
        for name in HOSTILE:
            self.rest("PUT", "/files/names/" + urllib.parse.quote(name, safe=""), {"size": 7})
        self.rest("PUT", "/files/demo/gone.root", {"size": 5})
        self.rest("DELETE", "/entries/demo/gone.root")
        self.rest("PUT", "/files/secret/plan.txt?parents=true", {"size": 1})
        self.rest("PATCH", "/entries/secret", {"mode": "700"})
        self.rest("PUT", "/files/demo/packed.zip", {"size": 9})
        self.run("register", "/demo/inside.root", "--member-of", "/demo/packed.zip?in side.root")
        self.run("collection", "create", "/demo/chosen")
        self.run("collection", "add", "/demo/chosen", "/demo/packed.zip")
        self.snapshot_revision = json.loads(self.run("--json", "snapshot", "create", "before-test"))["revision"]
        self.rest("PUT", "/files/demo/after-the-snapshot.root", {"size": 3})
        self.rest("PUT", "/directories/many")
        began = time.monotonic()
        for first in range(0, entries, BATCH):
            last = min(first + BATCH, entries)
            lines = "".join(f'{{"lfn":"/many/file{number:08}.root","size":{number}}}\n' for number in range(first, last))
            self.rest("POST", "/files", lines)
        say(f"filled with {entries} entries in {time.monotonic() - began:.0f} s")

    def run(self, *arguments):
        done = subprocess.run([self.exacat, "--data", str(self.data), *arguments], capture_output=True, text=True)
        expect(" ".join(arguments), done.returncode == 0, done.stderr)
        return done.stdout

    def rest(self, method, target, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        kind = "application/x-ndjson" if isinstance(body, str) else "application/json"
        sent = body if isinstance(body, str) or body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": kind} if sent else {})
        connection.request(method, "/api/v1" + target, body=sent, headers=headers)
        answer = connection.getresponse()
        told = answer.read()
        expect(f"{method} {target}", answer.status == 200 and b'"error"' not in told, told[:1000])
        connection.close()

    def end(self):
        self.process.terminate()
        self.process.wait(60)


class Person:
    """A browser of somebody, whose pages are checked."""

    def __init__(self, browser, service, shots, **options):
        self.service, self.shots = service, shots
        self.base = f"http://127.0.0.1:{service.port}"
        self.context = browser.new_context(viewport=DESKTOP, **options)
        self.page = self.context.new_page()
        self.faults = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self.console)
        self.page.on("request", self.request)

    def console(self, message):
        # The browser reports the status of a page that is meant to be refused.
        if message.type == "error" and "status of 4" not in message.text and "status of 503" not in message.text:
            self.faults.append(message.text)

    def request(self, request):
        if not request.url.startswith((self.base, "data:")) and "se1.example.org" not in request.url:
            self.faults.append(f"content of another host: {request.url}")

    def open(self, path):
        response = self.page.goto(self.base + path)
        self.check(path)
        return response

    def sign_in(self, token, path="/"):
        self.open(path)
        expect("the page asks to sign in", "/sign-in" in self.page.url, self.page.url)
        self.check("the sign-in page")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in", exact=True).click()
        self.page.wait_for_url(lambda url: "/sign-in" not in url)

    def check(self, name):
        """Requires that the page is sound: no fault, no violation, nothing wider than the screen."""
        for width, size in [("desktop", DESKTOP), ("phone", PHONE)]:
            self.page.set_viewport_size(size)
            found = Axe().run(self.page).response["violations"]
            told = [(one["id"], one["help"], [node["html"][:300] for node in one["nodes"]][:3]) for one in found]
            expect(f"{name} at {width}: no violation", not found, json.dumps(told, indent=1))
            wide = self.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            expect(f"{name} at {width}: no horizontal scroll", wide[0] <= wide[1], wide)
            if self.shots:
                text = "".join(letter if letter.isalnum() else "-" for letter in name)[:60].strip("-") or "start"
                self.page.screenshot(path=str(self.shots / f"{text}.{width}.png"), full_page=True)
        self.page.set_viewport_size(DESKTOP)
        expect(f"{name}: no fault", not self.faults, self.faults)

    def text(self):
        return self.page.locator("main").inner_text()

    def close(self):
        self.context.close()


def browses(browser, service, shots):
    """A person signs in, browses down to a file, and signs out."""
    person = Person(browser, service, shots)
    person.sign_in(service.token, "/browse/demo")
    expect("the page that was asked for", person.page.url.endswith("/browse/demo"), person.page.url)
    person.check("/browse/demo")
    person.page.get_by_role("link", name="data/").click()
    while "/browse/" in person.page.url:
        person.page.locator("tbody th a").first.click()
    person.check("an entry")
    for word in ["Metadata", "Replicas", "Tags", "History", "Revision"]:
        expect(f"the entry has {word}", word in person.text(), person.text())
    expect("a replica has a site", person.page.get_by_role("columnheader", name="Site").count() == 1, person.text())
    person.page.locator(".crumbs a").first.click()
    expect("the root", person.page.url.endswith("/browse/"), person.page.url)
    person.open("/usage/")
    person.open("/entry/")
    cookies = [cookie for cookie in person.context.cookies() if cookie["name"] == "exacat-plain"]
    expect("a cookie that scripts and other sites do not see", cookies[0]["httpOnly"] and cookies[0]["sameSite"] == "Lax", cookies)
    person.page.get_by_role("button", name="Sign out").click()
    person.page.wait_for_url("**/sign-in")
    person.open("/browse/demo")
    expect("signed out", "/sign-in?next=" in person.page.url, person.page.url)
    person.close()


def wrong_token(browser, service, shots):
    """A bad token shows why, and lets the person try again."""
    person = Person(browser, service, shots)
    person.open("/")
    person.page.get_by_label("Token").fill("exa_bad")
    person.page.get_by_role("button", name="Sign in", exact=True).click()
    expect("the reason", person.page.get_by_role("alert").inner_text() != "", person.text())
    person.check("a refused sign-in")
    person.close()


def searches(browser, service, shots):
    """A search by the form finds files, and a bad condition is explained."""
    person = Person(browser, service, shots)
    person.sign_in(service.token)
    person.open("/search")
    person.page.get_by_label("Below directory").fill("/demo")
    person.page.get_by_label("Name (shell pattern)").fill("*.root")
    person.page.get_by_label("file", exact=True).check()
    person.page.get_by_label("link", exact=True).check()
    person.page.get_by_role("button", name="Search").click()
    person.check("a search")
    expect("files are found", person.page.locator("tbody tr").count() > 10, person.text())
    expect("the kinds stay", person.page.get_by_label("link", exact=True).is_checked(), person.page.url)
    expect("the conditions stay", person.page.get_by_label("Name (shell pattern)").input_value() == "*.root")
    person.page.get_by_label("Tags").fill("==")
    person.page.get_by_role("button", name="Search").click()
    person.check("a refused search")
    expect("the reason", person.page.get_by_role("alert").inner_text() != "", person.text())
    person.close()


def looks_back(browser, service, shots):
    """A person searches a state of the past, and compares two moments, with the keyboard alone."""
    person = Person(browser, service, shots)
    person.sign_in(service.token)
    before = service.snapshot_revision
    person.open(f"/search?lfn=/demo&name=after-the*&at={before}")
    expect("it was not there", f"As of revision {before};" in person.text() and "Entries: 0" in person.text(), person.text())
    person.page.get_by_label("As it was").fill("")
    person.page.keyboard.press("Enter")
    person.page.wait_for_url(lambda url: f"at={before}" not in url)
    expect("it is there", "after-the-snapshot.root" in person.text(), person.text())
    person.page.get_by_label("While an element had a value").fill("beam")
    person.page.keyboard.press("Enter")
    expect("the reason", "GROUP:ELEMENT=VALUE" in person.page.get_by_role("alert").inner_text(), person.text())
    person.open("/compare")
    person.page.get_by_label("From").focus()
    person.page.keyboard.type(str(before))
    person.page.get_by_label("Below directory").fill("/demo")
    person.page.keyboard.press("Enter")
    person.page.wait_for_url("**/compare?before=*")
    person.check("a comparison of moments")
    expect("the difference", "after-the-snapshot.root" in person.text() and "created" in person.text(), person.text())
    person.open("/compare?before=before-test&after=now&under=/demo")
    expect("the same by a snapshot", "after-the-snapshot.root" in person.text(), person.text())
    person.open("/compare?before=1970-01-02")
    person.close()


def relations(browser, service, shots):
    """A file leads to its archive, an archive to its members, and a member to its collections."""
    person = Person(browser, service, shots)
    person.sign_in(service.token)
    person.open("/entry/demo/inside.root")
    person.page.get_by_role("link", name="/demo/packed.zip").click()
    person.page.wait_for_url("**/entry/demo/packed.zip")
    person.page.get_by_role("link", name="Find members, if it is an archive").click()
    person.check("members of an archive")
    expect("the member", "/demo/inside.root" in person.text(), person.text())
    person.page.get_by_role("link", name="Find collections with the file").click()
    person.check("collections with a file")
    expect("the collection", "/demo/chosen" in person.text(), person.text())
    person.close()


def restores(browser, service, shots):
    """A removed file comes back by the form of the trash, with the keyboard alone."""
    person = Person(browser, service, shots)
    person.sign_in(service.token)
    person.open("/trash")
    person.page.locator("summary").first.focus()
    person.page.keyboard.press("Enter")
    person.check("the form of the trash")
    person.page.get_by_role("button", name="Restore it").focus()
    person.page.keyboard.press("Enter")
    person.page.wait_for_url("**/entry/demo/gone.root")
    person.check("a restored entry")
    person.close()


def refuses(browser, service, shots):
    """A person without rights is refused, and sees no pages of operators."""
    person = Person(browser, service, shots)
    person.sign_in(service.jane)
    expect("no links of operators", person.page.get_by_role("link", name="Overview").count() == 0)
    for path in ["/browse/secret", "/entry/secret/plan.txt", "/overview", "/snapshots", "/requests", "/slow",
                 "/servers", "/contents", "/throttles", "/repair", "/clone?of=before-test"]:
        status = person.open(path).status
        expect(f"{path} is refused", status == 403 and "Permission denied" in person.text(), status)
    person.open("/account")
    person.close()


def names(browser, service, shots):
    """Names that try to leave their place are text."""
    person = Person(browser, service, shots)
    person.sign_in(service.token)
    person.open("/browse/names")
    links = person.page.locator("tbody th a")
    expect("all names", links.count() == len(HOSTILE), person.text())
    targets = [links.nth(number).get_attribute("href") for number in range(links.count())]
    for number, target in enumerate(targets):
        expect("an entry", person.open(target).status == 200, target)
        expect("no script ran", "broken" not in person.page.title() or "<" in person.page.title(), person.page.title())
    person.close()


def large(browser, service, shots):
    """A directory of many entries opens as fast as a small one, page after page."""
    person = Person(browser, service, shots)
    person.sign_in(service.token)
    times = []
    person.open("/browse/many")
    seen = set()
    for _ in range(5):
        began = time.perf_counter()
        person.page.get_by_role("link", name="Next page").click()
        person.page.wait_for_load_state("load")
        times.append(1000 * (time.perf_counter() - began))
        first = person.page.locator("tbody th a").first.inner_text()
        expect("another page", first not in seen, first)
        seen.add(first)
    person.check("a page of a large directory")
    say(f"    next page in the browser: {sorted(times)[2]:.0f} ms")
    person.close()


def operates(browser, service, shots):
    """An operator sees every page of operations, live figures under load, and confirms an action."""
    person = Person(browser, service, shots)
    person.sign_in(service.token, "/overview")
    person.page.wait_for_url("**/overview")
    person.check("/overview")
    before = person.page.locator("[data-figure=up]").inner_text()
    for number in range(200):
        service.rest("GET", "/entries/demo")
    # The page's policy refuses scripts made from text, with which wait_for_function would look again.
    expect_soon(person.page.locator("[data-live]")).to_have_text(re.compile("^Live"), timeout=20_000)
    expect_soon(person.page.locator("[data-figure=up]")).not_to_have_text(before, timeout=20_000)
    person.check("the live overview")
    for path in ["/storage", "/quotas", "/users", "/tokens", "/snapshots", "/requests", "/slow", "/waits",
                 "/reports", "/servers", "/contents", "/contents?span=365", "/throttles", "/action/throttle-set",
                 "/action/drain", "/compare?before=before-test", "/compare?revision=0&under=/demo", "/repair",
                 "/clone?of=before-test", "/reports?other_from=2026-01-01"]:
        expect(path, person.open(path).status == 200, person.text())
    person.open("/snapshots")
    person.page.get_by_role("link", name="Take a snapshot").click()
    person.check("a confirmation")
    person.page.get_by_label("Name of the snapshot").fill("by-page")
    person.page.get_by_role("button", name="Take it").click()
    person.check("an action that was done")
    expect("it is done", "by-page" in person.page.get_by_role("status").inner_text(), person.text())
    expect("the log has a line", wait_for_log(service, "action of a page"), "")
    person.open("/throttles")
    person.page.get_by_role("link", name="Throttle users").click()
    person.page.get_by_label("user:NAME, group:NAME, or everybody").fill("everybody")
    person.page.get_by_label("Items a second").fill("50000")
    person.page.get_by_role("button", name="Throttle them").click()
    person.page.get_by_role("link", name="Back").click()
    expect("the throttle is listed", "everybody" in person.text(), person.text())
    person.check("a list of throttles")
    person.page.get_by_role("link", name="End").click()
    person.page.get_by_role("button", name="End it").click()
    expect("it is ended", "Done." in person.page.get_by_role("status").inner_text(), person.text())
    person.open("/overview")
    person.page.get_by_role("link", name="Drain the server").click()
    person.page.get_by_role("button", name="Drain it").click()
    expect("the drain is told", "Done." in person.page.get_by_role("status").inner_text(), person.text())
    expect("other pages are refused", person.page.goto(person.base + "/browse/demo").status == 503, "")
    person.open("/overview")
    person.page.get_by_role("link", name="Resume the server").click()
    person.page.get_by_role("button", name="Resume it").click()
    expect("it serves again", person.open("/browse/demo").status == 200, person.text())
    person.close()


def wait_for_log(service, text):
    log = pathlib.Path(service.log.name)
    wait_until(text, lambda: text in log.read_text(errors="replace"))
    return True


def without_script(browser, service, shots):
    """Everything can be read without scripts, and in dark colours."""
    person = Person(browser, service, shots, java_script_enabled=False, color_scheme="dark")
    person.page.goto(person.base + "/browse/demo")
    person.page.get_by_label("Token").fill(service.token)
    person.page.get_by_role("button", name="Sign in", exact=True).click()
    person.page.wait_for_url("**/browse/demo")
    for path in ["/browse/demo", "/overview", "/search?name=*.root", "/trash", "/snapshots", "/requests",
                 "/slow", "/waits", "/reports", "/servers", "/contents", "/storage", "/repair", "/compare?before=1",
                 "/entry/demo/packed.zip?find=members"]:
        expect(path, person.page.goto(person.base + path).status == 200 and len(person.text()) > 50, person.text())
        if shots:
            text = "".join(letter if letter.isalnum() else "-" for letter in path).strip("-")
            person.page.screenshot(path=str(shots / f"dark-{text}.png"))
    person.close()


def dark(browser, service, shots):
    """Dark colours have enough contrast too."""
    person = Person(browser, service, shots and shots / "dark", color_scheme="dark")
    if shots:
        (shots / "dark").mkdir(exist_ok=True)
    person.sign_in(service.token)
    for path in ["/browse/demo", "/overview", "/usage/", "/trash", "/entry/demo/gone.root", "/action/check",
                 "/requests", "/waits", "/reports", "/servers", "/contents", "/throttles", "/action/throttle-set",
                 "/action/snapshot-drop?of=x", "/browse/nothing", "/storage", "/repair", "/search?name=*&at=1",
                 "/compare?before=before-test", "/entry/demo/packed.zip?find=collections"]:
        person.open(path)
    person.close()


TESTS = [browses, wrong_token, searches, looks_back, relations, restores, refuses, names, large, operates, without_script, dark]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("exacat")
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--short", action="store_const", const=ENTRIES_SHORT, dest="entries")
    parser.add_argument("--shots", type=pathlib.Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if not chromium:
        sys.exit("Chromium is not installed (Debian: apt-get install chromium); or name it: CHROMIUM=PATH")
    if asked.shots:
        asked.shots.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        service = Service(asked.exacat, place, asked.entries)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            for test in TESTS:
                if asked.only not in test.__name__:
                    continue
                began = time.monotonic()
                try:
                    test(browser, service, asked.shots)
                    say(f"ok      {test.__name__} ({time.monotonic() - began:.1f} s)")
                except Exception as why:
                    failed += 1
                    say(f"FAILED  {test.__name__}: {why}")
        finally:
            browser.close()
            service.end()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
