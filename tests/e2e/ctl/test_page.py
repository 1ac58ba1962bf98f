#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl page: one page about all reducers, which needs no server."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import harness
from faults import World, get
from test_http import GRPC, HAS_HTTP, HTTP, until

BROWSER = shutil.which("chromium")


def page(*argv):
    argv = [harness.binary("reductionctl"), "page", *map(str, argv)]
    env = {**os.environ, **harness.sanitizer_env(argv)}
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60 * harness.SCALE)


def data(html):
    """What is in the page, which is one element of it."""
    return json.loads(re.search(r'<script id="all" type="application/json">([^<]*)</script>', html)[1])


@unittest.skipUnless(HAS_HTTP and harness.HAS_GRPC, "this build has no HTTP or no gRPC")
class Page(unittest.TestCase):
    def test_all_reducers(self):
        with harness.Cluster(reducers=3, server_args=[*HTTP, *GRPC]) as c:
            w = World(c)
            ranks = w.job(name="dead")
            w.tell("abort")  # with a reason that looks like HTML
            c.wait_all(ranks)
            w.job(name="alive", ill=None)
            c.reducers[2].kill()
            for at in w.http[:2]:
                until(lambda: json.loads(get(at, "/history"))["samples"], "samples")  # noqa: B023
            file = c.dir / "all.html"
            done = page(w.target(), "--output", file)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("r2", done.stderr)
            html = file.read_text()
            found = data(html)
            self.assertEqual([a["reducer"] for a in found["answers"]], ["r0", "r1", "r2"])
            self.assertIn("connection refused", found["answers"][2]["why"])
            self.assertEqual([[j["name"] for j in a["jobs"]] for a in found["answers"][:2]], [["alive"]] * 2)
            self.assertTrue(all(a["samples"] for a in found["answers"][:2]))
            self.assertIn("<b>the loss & more</b>", json.dumps(found["ended"]))
            self.assertNotIn("<b>", html)
            if BROWSER:
                self.look(c, file)
            self.assertEqual(len(data(page(w.grpc[0]).stdout)["answers"]), 1)

    def look(self, c, file):
        """A browser shows what the data say."""
        argv = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={c.dir}/chromium",
                "--dump-dom", file.as_uri()]  # fmt: skip
        dom = subprocess.run(argv, capture_output=True, text=True, timeout=60 * harness.SCALE).stdout
        text = re.sub(r"<[^>]+>", " ", dom[dom.index("<main"):])
        for want in ("Reducers: 2 of 3 answer", "r2 does not answer: ", "Job alive", "&lt;b&gt;the loss &amp; more"):
            self.assertIn(want, dom if want.startswith("Reducers") else text)

    def test_wrong_usage(self):
        done = page("127.0.0.1:1", "--every", "5")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--every needs --output FILE", done.stderr)
        done = page("127.0.0.1:1", "--output", pathlib.Path("/nonexistent/all.html"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write /nonexistent/all.html.new", done.stderr)


if __name__ == "__main__":
    harness.main()
