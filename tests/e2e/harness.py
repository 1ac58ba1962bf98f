# SPDX-License-Identifier: Apache-2.0
"""Real reducers, agents and worker processes on loopback, for end-to-end tests.

    import unittest, harness

    class Sum(unittest.TestCase):
        def test_two_ranks(self):
            with harness.Cluster(reducers=2, lanes=2) as c:
                results = c.run(2, harness.python('''
                    import numpy, reduction
                    with reduction.Communicator() as comm:
                        x = numpy.ones(5, dtype="float32")
                        comm.all_reduce(x)
                        print(x.tolist())
                '''))
                self.assertEqual([r.out for r in results], ["[2.0, 2.0, 2.0, 2.0, 2.0]\\n"] * 2)

    if __name__ == "__main__":
        harness.main()

Leaving a Cluster ends everything that it started, by process id. It fails the test if a daemon does not exit with 0 on
SIGTERM or a sanitizer reported an error in any process. If the test itself fails, all logs are printed.

The environment: REDUCTION_BUILD, the build folder (default build/default); REDUCTION_SAN, the sanitizers of that build;
REDUCTION_TEST_SLOW=1, test less (default: 1 with sanitizers, else 0); REDUCTION_TRANSPORT, the transport between
workers or agents and reducers unless the test chooses one: tcp (default) or grpc. Only worker processes load
libreduction, never the test program: a sanitizer's runtime must be loaded before Python's own code, and the harness
arranges that for workers.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("REDUCTION_BUILD", "build/default")).resolve()
SAN = os.environ.get("REDUCTION_SAN", "")
# Debian's, which has Debian's numpy and torch; PATH may have another one. Another torch:
# that of REDUCTION_TEST_PYTHON
PYTHON = os.environ.get("REDUCTION_TEST_PYTHON") or "/usr/bin/python3"

# Every timeout given to the harness is multiplied by this. Tests must multiply their own
# timeouts by it too.
SCALE = 10 if "thread" in SAN else 4 if SAN else 2

# Timeout of a connect that cannot succeed, which is waited for completely. Several
# attempts must fit in, even if a thread is stopped for more than a second. Not for
# connects that succeed: they may have to wait for other processes.
SOON = {"timeouts": {"connect": f"{6000 if 'thread' in SAN else 3000 if SAN else 2500}ms"}}

# If this is set, tests skip parts that only repeat on a larger scale.
SLOW = os.environ.get("REDUCTION_TEST_SLOW", "1" if SAN else "0") not in ("", "0")

# job.transport of workers and agents, unless a test chooses one.
TRANSPORT = os.environ.get("REDUCTION_TRANSPORT", "tcp")

_LAUNCHER = re.compile(
    r"(REDUCTION|SLURM|OMPI|PMIX|TORCHELASTIC)_|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|MASTER_(ADDR|PORT)$"
    r"|(CLUSTER_SPEC|TF_CONFIG)$"
)
_REPORT = re.compile(r"(ERROR|WARNING): \w+Sanitizer|SUMMARY: \w+Sanitizer|: runtime error: ")


def reserve_port():
    """Returns a socket that reserves a port of loopback for programs that listen there, one after the other, until it
    is closed. No other process gets that port meanwhile, and a connect is refused while no program listens."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # reducers set it too, so both can bind
    held.bind(("127.0.0.1", 0))
    return held


def write_whole(path, text):
    """Writes a file atomically: a reader gets the old text or the new one. Returns its path as text."""
    new = pathlib.Path(f"{path}.new")
    new.write_text(text)
    new.replace(path)
    return str(path)


def binary(name):
    """Returns the path of a program of the build, for example "reduction-bench"."""
    return str(BUILD / "bin" / name)


def python(code, *args):
    """Returns a worker's command that runs Python code, which may be indented, with sys.argv[1:] = args."""
    return [PYTHON, "-c", textwrap.dedent(code), *map(str, args)]


HAS_GRPC = (BUILD / "lib" / "libreduction-grpc.so").exists()


def main():
    """Runs the unittest program. SIGTERM raises an exception, so that clusters are cleaned up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # KeyboardInterrupt, because unittest catches SystemExit
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    unittest.main()


def _runtime():
    return "libtsan.so" if "thread" in SAN else "libasan.so"


@functools.lru_cache
def _compiler_file(name):
    """Returns the path of a library of the compiler."""
    argv = [os.environ.get("CC", "gcc"), "-print-file-name=" + name]
    return os.path.realpath(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())


def _speaks_grpc(argv):
    """Returns whether a daemon's command line or configuration has it."""
    if os.path.basename(argv[0]) not in ("reduction-server", "reduction-agent"):
        return False
    files = [argv[i + 1] for i, word in enumerate(argv[:-1]) if word == "--config"]
    # a file in a container is not to be seen from here, and may have it
    return "--grpc" in argv or any(not os.path.isfile(f) or '"grpc"' in pathlib.Path(f).read_text() for f in files)


def sanitizer_env(argv):
    """Returns the variables for a program of a build with sanitizers, or for a Python that loads its library."""
    env = {
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"second_deadlock_stack=1:exitcode=66:suppressions={ROOT / 'tests' / 'e2e' / 'tsan.supp'}",
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    }
    name = os.path.basename(argv[0])
    if name in ("reductionctl", "reduction-server", "reduction-agent"):
        # LeakSanitizer crashes sometimes, on ending threads of gRPC, while it reads what
        # threads
        env["LSAN_OPTIONS"] = "use_tls=0:print_suppressions=0"
    if name == "reductionctl" or _speaks_grpc(argv):
        # it may end right after a call of OpenSSL on a thread of gRPC: leaks there are
        # found by the tests of plain TLS
        env["LSAN_OPTIONS"] += f":suppressions={ROOT / 'tests' / 'e2e' / 'lsan.supp'}"
    if SAN and name.startswith("python"):
        # with the C++ runtime, for modules such as torch: the sanitizer looks for its
        # exception hooks at the start
        env["LD_PRELOAD"] = ":".join(_compiler_file(f) for f in (_runtime(), "libstdc++.so"))
        # leaks are those of the interpreter, which has many; keeping all freed memory
        # takes it long
        env["ASAN_OPTIONS"] = "detect_leaks=0:quarantine_size_mb=16:thread_local_quarantine_size_kb=64"
        # Python and its modules are not instrumented: checking what they report through
        # intercepted functions takes a third of the processor time of test_nonfinite.
        # Programs in C find races of libreduction in memcpy() and the like.
        env["TSAN_OPTIONS"] += ":ignore_noninstrumented_modules=1"
        # Python 3.13 ends without its daemon threads, of which some have ended and were
        # not joined
        env["TSAN_OPTIONS"] += ":report_thread_leaks=0"
    return env


def reach(way):
    """Environment of a rank that goes the way of this mode ("direct", "node"), or through the agent at this socket.
    "": the default."""
    mode = way in ("direct", "node")
    return {"REDUCTION_MODE": way if mode else "", "REDUCTION_AGENT": "" if mode else way}


def worker_env():
    """Returns the variables for Python to find the package, its library and the helpers of workers."""
    return {
        "REDUCTION_LIBRARY": str(BUILD / "lib" / "libreduction.so.0"),
        "PYTHONPATH": f"{ROOT / 'agent' / 'python'}:{ROOT / 'tests' / 'e2e'}",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class Proc:
    """A started process, with all its output. `out` and `err` are the text so far; `code` is the exit status after
    a wait, negative if a signal ended it."""

    def __init__(self, name, argv, env=None, cwd=None):
        self.name, self.argv = name, argv
        self.code = None
        self._asked = False  # whether it was asked to end
        self.killed = False  # ended on purpose: its exit status is not checked
        self._late = False  # ended because a wait for its end took too long: its exit status says nothing
        self.started = time.monotonic()
        full = {k: v for k, v in os.environ.items() if not _LAUNCHER.match(k)}
        full.update(sanitizer_env(argv))
        full.update(env or {})
        self._change = threading.Condition()
        self._text = {"out": "", "err": ""}
        self._open = 2
        self._popen = subprocess.Popen(
            argv, env=full, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._threads = [
            threading.Thread(target=self._read, args=(stream, pipe), daemon=True)
            for stream, pipe in (("out", self._popen.stdout), ("err", self._popen.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream, pipe):
        with pipe:
            while data := os.read(pipe.fileno(), 65536):
                with self._change:
                    self._text[stream] += data.decode("utf-8", "replace")
                    self._change.notify_all()
        with self._change:
            self._open -= 1
            self._change.notify_all()

    @property
    def out(self):
        return self._text["out"]

    @property
    def err(self):
        return self._text["err"]

    def wait_text(self, pattern, timeout=20, stream="err"):
        """Waits until its output matches a regular expression; returns the match. Raises AssertionError at the timeout,
        or if the process ends without it."""
        deadline = time.monotonic() + timeout * SCALE
        with self._change:
            while not (match := re.search(pattern, self._text[stream], re.M)):
                left = deadline - time.monotonic()
                if left <= 0 or self._open == 0:
                    why = "ended" if self._open == 0 else f"was waited for {timeout * SCALE:.1f} s"
                    raise AssertionError(f"{self.name} {why} without {pattern!r} on std{stream}\n{self.report()}")
                self._change.wait(left)
        return match

    def wait_more(self, timeout):
        """Waits until it writes more, at most so many seconds."""
        with self._change:
            if self._open:
                self._change.wait(timeout)

    def wait(self, timeout=60):
        """Waits for its end and returns `code`. AssertionError at the timeout; the process is then killed."""
        try:
            self.code = self._popen.wait(timeout * SCALE)
        except subprocess.TimeoutExpired:
            self._late = True
            self.signal(signal.SIGABRT)  # Python's fault handler prints the stacks
            try:
                self._popen.wait(2)
            except subprocess.TimeoutExpired:
                pass
            self.kill()
            raise AssertionError(f"{self.name} did not end within {timeout * SCALE:.1f} s\n{self.report()}") from None
        self._drain()
        return self.code

    def _drain(self):
        # a grandchild that holds the pipes open must not block the test; else only
        # buffered output is read
        for thread in self._threads:
            thread.join(10)
        try:
            self._popen.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it had read all its input

    def tell(self, line=""):
        """Writes a line to its standard input, for worker.listen()."""
        try:
            self._popen.stdin.write(line.encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"{self.name} does not listen any more\n{self.report()}") from None

    def said(self, what, timeout=20):
        """Waits for its output of worker.say() with this name, and returns the last such object."""
        self.wait_text(rf'^\{{"what": "{re.escape(what)}".*\}}$', timeout, "out")
        return [line for line in self.objects() if line["what"] == what][-1]

    def objects(self):
        """Returns the JSON objects in its standard output, one on each line."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{") and line.endswith("}")]

    def running(self):
        return self._popen.poll() is None

    def signal(self, number):
        """Sends a signal to this process alone."""
        self._asked |= number in (signal.SIGTERM, signal.SIGINT)
        if self.running():
            self._popen.send_signal(number)

    def kill(self):
        """Ends it and its children by SIGKILL, like a crash of the machine. Its status is not checked later."""
        self.killed = True
        if self.running():
            os.killpg(self.pid, signal.SIGKILL)
        self.code = self._popen.wait()
        self._drain()

    def stop(self, timeout=20):
        """Asks it to end by SIGTERM, unless it was asked before, and returns `code`. A second signal could arrive after
        its handlers were removed."""
        if not self._asked:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def report(self):
        """Returns the facts that a person needs after a failed test."""
        state = "running" if self.running() else f"exit status {self._popen.returncode}"
        if self._late:
            state = "too late, ended by the test"  # tests/run.py takes no crash for what a busy machine does
        text = f"--- {self.name} (pid {self.pid}, {state}): {' '.join(self.argv)[:300]}\n"
        for stream in ("out", "err"):
            lines = self._text[stream].splitlines()
            if len(lines) > 100:
                short = lines[:20] + [f"... {len(lines) - 100} lines ..."] + lines[-80:]
                # the report of a sanitizer is the most important part, wherever it is
                found = (i for i, line in enumerate(lines) if re.search(r"(WARNING|ERROR): \w+Sanitizer", line))
                at = next(found, None)
                lines = short if at is None or at < 20 else short + ["... of these:"] + lines[at : at + 80]
            text += "".join(f"    std{stream}: {line}\n" for line in lines)
        return text


def wait_any(procs, pattern, timeout=20):
    """Waits until standard error of one of them matches a regular expression; returns the match."""
    deadline = time.monotonic() + timeout * SCALE
    while not (found := next(filter(None, (re.search(pattern, p.err, re.M) for p in procs)), None)):
        if time.monotonic() > deadline:
            raise AssertionError(f"none has said {pattern!r} within {timeout * SCALE:.1f} s\n{procs[0].report()}")
        procs[0].wait_more(0.1)
    return found


class Cluster:
    """Reducers, agents and workers of one test. All keyword arguments are optional:

    reducers, lanes     number of reducers, and lanes of each
    agents              number of nodes with an agent; 0: workers have the engine in their own process
    config              dict merged into the configuration file of agents and workers, section by section, for
                        example {"job": {"deterministic": True}, "sharding": {"chunk_bytes": "4KiB"}}
    server_config       dict: the configuration file of the reducers (default: none)
    server_args         further arguments of every reducer
    transport           "tcp" or "grpc" (default: TRANSPORT)
    start               False: start nothing; the test calls start_reducer() and start_agent()
    """

    def __init__(self, reducers=1, agents=0, lanes=1, config=None, server_config=None, server_args=(), transport=None,
                 start=True):
        self.transport = transport or TRANSPORT
        self.lanes, self.server_config, self.server_args = lanes, server_config, list(server_args)
        self.config = config or {}
        self.reducers = [None] * reducers  # Proc of each
        self.agents = [None] * agents
        self._addresses = [None] * reducers
        self._ports = []  # reserved for reducers
        self._start = start
        self._procs = []
        self.dir = None  # a temporary folder, removed at the end

    def __enter__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        try:
            if self._start:
                for i in range(len(self.reducers)):
                    self.start_reducer(i, wait=False)
                for i in range(len(self.reducers)):
                    self.address(i)
                for i in range(len(self.agents)):
                    self.start_agent(i)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        problems = []
        try:
            problems = self._end_all()
        finally:
            for p in self._procs:
                if p.running():
                    p.kill()
            for held in self._ports:
                held.close()
            shutil.rmtree(self.dir, ignore_errors=True)
        if kind is not None or problems:
            print("\n" + "".join(p.report() for p in self._procs), file=sys.stderr, flush=True)
        if kind is None and problems:
            raise AssertionError("; ".join(problems))

    def _end_all(self):
        problems = []
        daemons = [p for p in self.agents + self.reducers if p]
        for p in self._procs:
            if p in daemons:
                continue
            if p.running():
                p.kill()
            else:
                p.wait()
        for p in daemons:
            if p.running():
                try:
                    p.stop()
                except AssertionError as exc:
                    problems.append(str(exc).splitlines()[0])
            else:
                p.wait()
            if not p.killed and p.code != 0:
                problems.append(f"{p.name} ended with status {p.code}, expected 0")
        for p in self._procs:
            if found := next((line for line in p.err.splitlines() if _REPORT.search(line)), None):
                problems.append(f"{p.name}: {found}")
        return problems

    def start(self, name, argv, env=None):
        """Starts any process; it ends with the cluster."""
        p = Proc(name, list(map(str, argv)), env, cwd=self.dir)
        self._procs.append(p)
        return p

    def start_reducer(self, i, wait=True):
        """Starts reducer i: the first time on a free port or the one in an existing configuration, later on the same
        port. Returns its Proc after it listens."""
        address = self._addresses[i] or self._reserve()
        argv = [binary("reduction-server"), "--lanes", self.lanes]
        argv += ["--listen", address] if self.transport == "tcp" else ["--listen", "127.0.0.1:0", "--grpc", address]
        if self.server_config is not None:
            argv += ["--config", self._write("server.yaml", self.server_config)]
        self.reducers[i] = self.start(f"reducer r{i}", argv + self.server_args)
        if wait:
            self._addresses[i] = None
            self.address(i)
        return self.reducers[i]

    def address(self, i):
        """Returns the address of reducer i for workers, "127.0.0.1:port". Waits until it listens; if it was not
        started, chooses a port for it."""
        if self._addresses[i] is None and self.reducers[i]:
            where = r'.*?address"?[=:]"?([^\s",]+)'
            # its last log line at the start
            match = self.reducers[i].wait_text(rf"\blistening\b{where}")
            if self.transport == "grpc":
                match = self.reducers[i].wait_text(rf"\bgrpc-ready\b{where}")
            self._addresses[i] = match.group(1)
        elif self._addresses[i] is None:
            self._addresses[i] = self._reserve()
        return self._addresses[i]

    def _reserve(self):
        """Returns an address that is reserved for the cluster, also while no reducer listens there."""
        self._ports.append(reserve_port())
        return "127.0.0.1:%d" % self._ports[-1].getsockname()[1]

    def connect(self, i):
        """A plain TCP connection to reducer i."""
        host, port = self.address(i).rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=10 * SCALE)

    def socket_path(self, i):
        return str(self.dir / f"agent{i}.sock")

    def start_agent(self, i, config=None, path=None, env=None):
        """Starts agent i; returns its Proc after it listens. config: merged into the cluster's; path: its file; env:
        more variables."""
        path = path or self.write_config(f"agent{i}.yaml", config)
        argv = [binary("reduction-agent"), "--config", path, "--socket", self.socket_path(i)]
        self.agents[i] = self.start(f"agent {i}", argv, env)
        self.agents[i].wait_text(r"\blistening\b")
        return self.agents[i]

    def _write(self, name, tree):
        return write_whole(self.dir / name, json.dumps(tree, indent=1) + "\n")  # JSON is YAML

    def write_config(self, name, config=None):
        """Writes the configuration file of this cluster, with a dict merged into it; returns its path."""
        tree = {
            "job": {"name": "test", "transport": self.transport},
            "reducers": [
                {"id": f"r{i}", "address": self.address(i), "lanes": self.lanes} for i in range(len(self.reducers))
            ],
        }
        for more in (self.config, config or {}):
            for section, value in more.items():
                if isinstance(value, dict):
                    tree[section] = {**tree.get(section, {}), **value}
                else:
                    tree[section] = value
        if tree["job"].get("transport") == "grpc":
            tree["reducers"] = [{"grpc": r["address"], **r} for r in tree["reducers"]]
        return self._write(name, tree)

    def start_worker(self, rank, world_size, argv, env=None, config=None):
        """Starts one worker; returns its Proc. With agents, consecutive ranks share one, in equal parts.
        env: more variables. config: merged into the cluster's for this worker."""
        nodes = max(1, len(self.agents))
        local = max(1, world_size // nodes)
        node = min(rank // local, nodes - 1)
        full = {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": rank - node * local,
            "LOCAL_WORLD_SIZE": world_size - node * local if node == nodes - 1 else local,
            **reach(self.socket_path(node) if self.agents else "direct"),
            "REDUCTION_CONFIG": self.write_config(f"worker{len(self._procs)}.yaml", config),
            # these programs get the identity of their training from the store of
            # torch.distributed or of jax.distributed
            **({} if any(re.search("worker_(torch|jax_)", str(arg)) for arg in argv) else {"REDUCTION_RUN": "test"}),
        }
        full.update(worker_env())
        full.update(env or {})
        return self.start(f"worker {rank}", argv, {k: str(v) for k, v in full.items()})

    def start_workers(self, world_size, argv, env=None, config=None):
        """Starts all ranks. argv and env may be functions of the rank."""
        return [
            self.start_worker(
                rank,
                world_size,
                argv(rank) if callable(argv) else argv,
                env(rank) if callable(env) else env,
                config,
            )
            for rank in range(world_size)
        ]

    def run(self, world_size, argv, timeout=60, env=None, config=None, check=True):
        """Starts all ranks and waits for them; returns their Procs in order of rank. check: AssertionError if one does
        not exit with status 0."""
        procs = self.start_workers(world_size, argv, env, config)
        self.wait_all(procs, timeout)
        if check:
            for p in procs:
                if p.code != 0:
                    reports = "".join(q.report() for q in procs if q.code != 0)
                    raise AssertionError(f"{p.name} ended with status {p.code}, expected 0\n{reports}")
        return procs

    def received_bytes(self):
        """Returns the bytes that the reducers have received. They need server_args=("--http", "127.0.0.1:0")."""
        total = 0
        for reducer in self.reducers:
            address = reducer.wait_text(r"\bhttp-ready\b.*?address=(\S+)").group(1)
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=20 * SCALE) as answer:
                text = answer.read().decode()
            total += sum(map(float, re.findall(r"^reduction_lane_received_bytes_total\S* (\S+)", text, re.M)))
        return total

    def wait_all(self, procs, timeout=60):
        """Waits until all have ended, together at most timeout seconds; returns their exit statuses."""
        deadline = time.monotonic() + timeout * SCALE
        return [p.wait(max(0.1, (deadline - time.monotonic()) / SCALE)) for p in procs]
