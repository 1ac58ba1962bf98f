#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""reductionctl notice against the metadata services of metadata.py: each provider's notice becomes the file for which
reducers look, and whatever else a service answers does not end the watch."""

import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import harness
import metadata

PROVIDERS = {"aws": "terminate", "gcp": "preempted", "azure": "Preempt"}
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


class Watch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "notice"

    def service(self, provider, **options):
        service = metadata.Service(provider, **options)
        self.enterContext(service)
        return service

    def watch(self, provider, address, *more):
        argv = [harness.binary("reductionctl"), "notice", "--provider", provider, "--address", address]
        p = harness.Proc("notice", [*argv, "--file", str(self.file), *more])
        self.addCleanup(p.kill)
        p.wait_text(rf"\bwatching provider={provider} ")
        return p

    def wait_file(self, there=True, timeout=30):
        deadline = time.monotonic() + timeout * harness.SCALE
        while self.file.exists() != there:
            self.assertLess(time.monotonic(), deadline, f"the file is {'missing' if there else 'still there'}")
            time.sleep(0.02)
        return self.file.read_text() if there else None

    def test_each_provider(self):
        """None before, the file with reason and time after; withdrawn, it goes away."""
        for provider, what in PROVIDERS.items():
            for chunked in False, True:
                with self.subTest(provider, chunked=chunked):
                    service = self.service(provider)
                    service.chunked = chunked
                    p = self.watch(provider, service.address)
                    quiet = {"aws": ("rebalance", 404), "gcp": ("wait_for_change", None), "azure": ("events", 200)}
                    part, status = quiet[provider]
                    if status:
                        self.assertTrue(service.wait_asked(lambda m, path, s: part in path and s == status))
                    else:
                        self.assertTrue(service.wait_asked(lambda m, path, s: path.endswith("preempted")))
                    self.assertFalse(self.file.exists())
                    since = time.time()
                    service.notice(what, seconds=110)
                    text = self.wait_file()
                    self.assertLess(time.time() - since, (6 if provider == "aws" else 3) * harness.SCALE)
                    said = re.fullmatch(rf"a notice of {provider} at ({STAMP}): {what}\nbefore ({STAMP})\n", text)
                    self.assertTrue(said, text)
                    left = 30 if provider == "gcp" else 110
                    end = time.mktime(time.strptime(said[2], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
                    self.assertLess(abs(end - since - left), 8 * harness.SCALE)
                    p.wait_text(rf"\bnotice provider={provider} event={what} before={said[2]} file={self.file}")
                    service.notice(None)
                    self.wait_file(there=False)
                    p.wait_text(r"\bnotice-withdrawn ")
                    p.kill()

    def test_once(self):
        for provider, what in PROVIDERS.items():
            with self.subTest(provider):
                service = self.service(provider)
                argv = [harness.binary("reductionctl"), "notice", "--once", "--provider", provider,
                        "--address", service.address]  # fmt: skip
                done = subprocess.run(argv, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{provider}: no notice\n", ""))
                service.notice(what)
                done = subprocess.run(argv, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (3, ""))
                self.assertRegex(done.stdout, rf"^{provider}: {what} before {STAMP}\n$")

    def test_a_notice_from_before_the_watch(self):
        """The watcher is started again: gcp's question must not wait for the next change."""
        for provider, what in PROVIDERS.items():
            with self.subTest(provider):
                service = self.service(provider)
                service.notice(what)
                p = self.watch(provider, service.address)
                self.wait_file()
                p.kill()
                self.file.unlink()

    def test_an_expired_token(self):
        service = self.service("aws")
        p = self.watch("aws", service.address)
        self.assertTrue(service.wait_asked(lambda m, path, s: "rebalance" in path))
        service.tokens.clear()
        service.notice("stop")
        self.wait_file()
        statuses = [(path.rsplit("/", 1)[1], s) for _, path, s in service.asked]
        self.assertIn(("instance-action", 401), statuses)
        self.assertEqual(statuses.count(("token", 200)), 2)
        self.assertNotIn("notice-unknown", p.err)

    def test_few_requests(self):
        """At most three at the start, and then two each 5 s: the service limits them."""
        service = self.service("aws")
        self.watch("aws", service.address)
        self.assertTrue(service.wait_asked(lambda *_: len(service.asked) >= 5, 60))
        self.assertEqual([path.rsplit("/", 1)[1] for _, path, _ in service.asked],
                         ["token", "instance-action", "rebalance", "instance-action", "rebalance"])  # fmt: skip

    def test_trouble(self):
        """Each kind of failure is logged and does not end the watch; the notice after it is found."""
        slow = threading.Event()
        self.addCleanup(slow.set)
        cases = {
            "status 503 (too many requests)": lambda method, path: 503,
            "status 403 (the service is switched off": lambda method, path: 403,
            "status 500": lambda method, path: 500,
            "does not answer in time": lambda method, path: slow.wait(20) and None,
        }
        for reason, say in cases.items():
            with self.subTest(reason):
                service = self.service("aws")
                service.say = say
                p = self.watch("aws", service.address)
                p.wait_text(rf"\bnotice-unknown provider=aws .*failures=1 .*{re.escape(reason)}")
                service.say = lambda method, path: None
                service.notice("terminate")
                self.wait_file()
                p.kill()
                self.file.unlink()

    def test_nothing_listens(self):
        port = harness.reserve_port()
        address = "127.0.0.1:%d" % port.getsockname()[1]
        p = self.watch("azure", address)
        p.wait_text(r"\bnotice-unknown .*failures=2 .*(refused|cannot connect)")
        port.close()
        service = self.service("azure", port=int(address.rsplit(":", 1)[1]))
        service.notice("Terminate")
        self.wait_file()

    def test_answers_of_another_server(self):
        """Bytes that are no answer, too many, cut, or of a server that is not Google's: no notice, no crash."""
        answers = (
            b"", b"HTTP/1.1 200 OK\r\n", b"\0\xff" * 100, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nTRUE",
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nTRUE", b"HTTP/1.1 200 OK\r\n\r\nTRUE",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200000,
            b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nTRUE",
            b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n\r\nMAYBE", b"HTTP/1.1 9999 \r\n\r\n",
        )  # fmt: skip
        argv = [harness.binary("reductionctl"), "notice", "--once"]
        for provider in PROVIDERS:
            for answer in answers:
                with self.subTest(provider, answer=answer[:60]), socket.create_server(("127.0.0.1", 0)) as s:

                    def serve(s=s, answer=answer):
                        c = s.accept()[0]
                        s.close()  # no further question gets an answer
                        with c:
                            c.recv(4096)
                            c.sendall(answer)
                            c.shutdown(socket.SHUT_WR)
                            while c.recv(65536):
                                pass

                    thread = threading.Thread(target=lambda: _quiet(serve))
                    thread.start()
                    address = "127.0.0.1:%d" % s.getsockname()[1]
                    done = subprocess.run([*argv, "--provider", provider, "--address", address],
                                          capture_output=True, timeout=60)  # fmt: skip
                    thread.join()
                    self.assertEqual(done.returncode, 1, done)
                    self.assertIn(f"{provider} at {address}: ", done.stderr.decode())

    def test_events_that_are_not_the_end_of_this_machine(self):
        service = self.service("azure")
        later = time.time() + 600
        service.others = [("Preempt", "vm-2", later), ("Freeze", "vm-1", later)]
        p = self.watch("azure", service.address)
        p.wait_text(r"\bnotice-hint provider=azure event=Freeze")
        self.assertFalse(self.file.exists())
        service.notice("Terminate", 300)
        self.assertIn("azure at", self.wait_file())
        self.assertEqual(p.err.count("notice-hint"), 1)

    def test_rebalance_is_a_line(self):
        service = self.service("aws")
        service.rebalance = metadata.stamp(0)
        p = self.watch("aws", service.address)
        p.wait_text(r"\bnotice-hint provider=aws event=rebalance")
        self.assertFalse(self.file.exists())

    def test_acknowledgement(self):
        """Azure may start the event once the reducer is gone, not before; without the option never."""
        service = self.service("azure")
        with socket.create_server(("127.0.0.1", 0)) as reducer:
            address = "127.0.0.1:%d" % reducer.getsockname()[1]
            self.watch("azure", service.address, "--acknowledge", address)
            service.notice("Preempt", 30)
            self.wait_file()
            asked = len(service.asked)
            self.assertTrue(service.wait_asked(lambda *_: len(service.asked) > asked + 1))
            self.assertEqual(service.acknowledged, [])
        self.assertTrue(service.wait_asked(lambda method, *_: method == "POST"))
        self.assertEqual(service.acknowledged, ["602D9444-D2CD-49C7-8624-8643E7171099"])

    def test_somebody_elses_file_stays(self):
        self.file.write_text("maintenance\n")
        service = self.service("azure")
        self.watch("azure", service.address)
        self.assertTrue(service.wait_asked(lambda m, path, s: "events" in path and len(service.asked) > 3))
        self.assertEqual(self.file.read_text(), "maintenance\n")

    def test_usage(self):
        for argv, code, text in (
            (["--provider", "ibm"], 2, 'found "ibm", expected aws, gcp, azure or auto'),
            (["--provider", "aws", "--file", "/nowhere/notice"], 1, "/nowhere/notice.new: No such file"),
            (["--provider", "aws", "--once", "--address", "here"], 2, '--address: "here" is not an address'),
            (["--provider", "azure", "--acknowledge", "r0"], 2, '--acknowledge: "r0" is not an address'),
        ):
            done = subprocess.run([harness.binary("reductionctl"), "notice", *argv], capture_output=True, text=True)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(text, done.stderr)


def _quiet(serve):
    try:
        serve()
    except OSError:
        pass


if __name__ == "__main__":
    harness.main()
