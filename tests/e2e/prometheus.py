# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that reads reducers and agents with the shipped rules, for tests of alerts."""

import json
import re
import urllib.parse
import urllib.request

import harness

RULES = harness.ROOT / "deploy" / "prometheus" / "reduction.rules.yml"


def impatient(text, alerts=r"\w+", wait="1s"):
    """Rules whose alerts of these names (a regular expression) wait for less."""
    return re.sub(rf"(alert: (?:{alerts})\n(?:(?!- alert:).)*?for: )\w+", rf"\g<1>{wait}", text, flags=re.DOTALL)


class Prometheus:
    """Runs in a cluster, until its end. how: more for its scrape configuration. rules: text in place of those that are
    shipped."""

    def __init__(self, cluster, targets, how=None, rules=None):
        held = harness.reserve_port()  # Prometheus sets SO_REUSEADDR too
        port = held.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        path = harness.write_whole(cluster.dir / "prometheus.yml", config(cluster.dir, targets, how, rules))
        argv = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={cluster.dir}/tsdb",
                f"--web.listen-address={self.address}"]  # fmt: skip
        p = cluster.start("prometheus", argv)
        p.wait_text("Server is ready to receive web requests", 60)
        held.close()

    def query(self, what):
        url = f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": what})
        with urllib.request.urlopen(url, timeout=20 * harness.SCALE) as answer:
            return json.load(answer)["data"]["result"]

    def firing(self):
        """{(name of an alert, instance or job)} that fire now."""
        found = [a["metric"] for a in self.query('ALERTS{alertstate="firing"}')]
        return {(a["alertname"], a.get("instance") or a.get("reduction_job")) for a in found}


def config(folder, targets, how=None, rules=None):
    """The text of a configuration, whose other files are written into a folder."""
    path = harness.write_whole(folder / "rules.yml", rules or RULES.read_text())
    return json.dumps({
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [path],
        "scrape_configs": [{"job_name": "reduction", "static_configs": [{"targets": targets}], **(how or {})}],
    })
