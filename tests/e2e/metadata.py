# SPDX-License-Identifier: Apache-2.0
"""Metadata services of providers, as their pages describe them, for `reductionctl notice`.

    with metadata.Service("aws") as service:      # or gcp, azure
        ... --address service.address ...
        service.notice("terminate", seconds=120)

`service.asked` has (method, path, status) of each request. `service.say` is called with method and path before an
answer: it may return a status to answer with, or sleep. Each service refuses what the real one refuses: a request
without its header, a token that is unknown or has expired, a method that is not served.
"""

import email.utils
import http.server
import json
import secrets
import threading
import time
import urllib.parse


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.sent = self.rfile.read(length).decode()
        service = self.server.service
        status = service.say(self.command, self.path)
        body, headers = "", {}
        if status is None:
            status, body, headers = getattr(service, service.provider)(self)
        with service.changed:
            service.asked.append((self.command, self.path, status))
            service.changed.notify_all()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        text = body.encode()
        if service.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            text = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (text[:3], text[3:]) if part) + b"0\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = serve


class Service:
    def __init__(self, provider, port=0, host="127.0.0.1", name="vm-1"):
        self.provider, self.name, self.chunked = provider, name, False
        self.changed = threading.Condition()
        self.asked, self.tokens, self.say = [], {}, lambda method, path: None
        self.token_s = 21600  # at most
        self.what, self.at, self.rebalance = None, 0, None
        self.etag, self.others, self.acknowledged = "0" * 16, [], []
        self.server = http.server.ThreadingHTTPServer((host, port), Handler)
        self.server.daemon_threads = True
        self.server.service = self
        self.address = "%s:%d" % self.server.server_address[:2]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        with self.changed:
            self.what = "closing"
            self.changed.notify_all()

    def notice(self, what, seconds=120):
        """Gives a notice; None withdraws it."""
        with self.changed:
            self.what, self.at = what, time.time() + seconds
            self.etag = secrets.token_hex(8)
            self.changed.notify_all()

    def wait_asked(self, good, timeout=60):
        """Waits until a request is there for which good(method, path, status) holds."""
        with self.changed:
            return self.changed.wait_for(lambda: any(good(*row) for row in self.asked), timeout)

    def aws(self, request):
        """IMDSv2."""
        path = request.path
        if path == "/latest/api/token":
            seconds = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if request.command != "PUT":
                return 405, "", {}
            if not seconds.isdigit() or not 1 <= int(seconds) <= 21600 or request.headers.get("X-Forwarded-For"):
                return 400, "", {}
            token = secrets.token_urlsafe(40) + "=="
            self.tokens[token] = time.monotonic() + min(int(seconds), self.token_s)
            return 200, token, {"X-aws-ec2-metadata-token-ttl-seconds": seconds}
        if self.tokens.get(request.headers.get("X-aws-ec2-metadata-token"), 0) < time.monotonic():
            return 401, "<html>401 - Unauthorized</html>", {}
        if path == "/latest/meta-data/spot/instance-action" and self.what:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.at))
            return 200, json.dumps({"action": self.what, "time": at}), {"Content-Type": "application/json"}
        if path == "/latest/meta-data/events/recommendations/rebalance" and self.rebalance:
            return 200, json.dumps({"noticeTime": self.rebalance}), {}
        return 404, "<html>404 - Not Found</html>", {}

    def gcp(self, request):
        url = urllib.parse.urlparse(request.path)
        query = {k: v[-1] for k, v in urllib.parse.parse_qs(url.query).items()}
        if request.headers.get("Metadata-Flavor") != "Google":
            return 403, "<html>Missing Metadata-Flavor:Google header.</html>", {}
        if url.path != "/computeMetadata/v1/instance/preempted" or request.command != "GET":
            return 404, "", {}
        with self.changed:
            if query.get("wait_for_change") == "true":
                seen = query.get("last_etag", self.etag)
                self.changed.wait_for(lambda: self.etag != seen, float(query.get("timeout_sec", 3600)))
            return 200, "TRUE" if self.what else "FALSE", {"Metadata-Flavor": "Google", "ETag": self.etag}

    def azure(self, request):
        url = urllib.parse.urlparse(request.path)
        query = {k: v[-1] for k, v in urllib.parse.parse_qs(url.query).items()}
        if request.headers.get("Metadata") != "true":
            return 400, json.dumps({"error": "Bad request. Required metadata header not specified"}), {}
        if "api-version" not in query:
            return 400, json.dumps({"error": "Bad request. api-version was not specified in the request"}), {}
        if url.path == "/metadata/instance/compute/name" and query.get("format") == "text":
            return 200, self.name, {}
        if url.path != "/metadata/scheduledevents":
            return 404, "", {}
        if request.command == "POST":
            self.acknowledged += [e["EventId"] for e in json.loads(request.sent)["StartRequests"]]
            return 200, "", {}
        events = [self.event(i, *other) for i, other in enumerate(self.others)]
        if self.what:
            events.append(self.event(99, self.what, self.name, self.at))
        return 200, json.dumps({"DocumentIncarnation": len(self.asked), "Events": events}), {}

    @staticmethod
    def event(number, what, name, at):
        return {
            "EventId": f"602D9444-D2CD-49C7-8624-8643E7171{number:03}", "EventType": what,
            "ResourceType": "VirtualMachine", "Resources": [name, "another"], "EventStatus": "Scheduled",
            "NotBefore": email.utils.formatdate(at, usegmt=True) if at else "", "Description": "",
            "EventSource": "Platform", "DurationInSeconds": -1,
        }  # fmt: skip
