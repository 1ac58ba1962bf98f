# SPDX-License-Identifier: Apache-2.0
"""What a user does, in a bare root as root, on two machines that have our programs and nothing else of ours:
wheel_user.py and archive_user.py. The machines are network namespaces. Ranks and reducers run as an ordinary user.
Each step prints a line if it succeeded, and ends the program with an error if it did not."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HOME = pathlib.Path("/home/user")
TLS = HOME / "tls"
USER = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
MACHINES = {"m0": "10.99.0.1", "m1": "10.99.0.2"}
LATER = (1 << 20) * 48  # bytes that a reducer has received in the midst of a job
# names of the libraries that are carried; a conda environment has other builds of them
BROKEN = ("libssl.so.3", "libcrypto.so.3", "libuv.so.1", "libyaml-0.so.2", "libprotobuf-c.so.1", "libgrpc.so.29",
          "libabsl_base.so.20220623", "libgnutls.so.30", "libz.so.1.broken")  # fmt: skip


def must(argv, **more):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, cwd=HOME, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def done(text):
    print(f"ok {text}", flush=True)


def machines():
    for name in MACHINES:
        must(["ip", "netns", "add", name])
        must(["ip", "-n", name, "link", "set", "lo", "up"])
    must(["ip", "link", "add", "name", "wire", "netns", "m0", "type", "veth", "peer", "name", "wire", "netns", "m1"])
    for name, address in MACHINES.items():
        must(["ip", "-n", name, "address", "add", f"{address}/24", "dev", "wire"])
        must(["ip", "-n", name, "link", "set", "wire", "up"])


def environment(**more):
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return {**kept, "HOME": str(HOME), **{key: str(value) for key, value in more.items()}}


def job(name, reducers, authority="/home/user/tls/ca.pem", **more):
    path = HOME / f"{name}.yaml"
    lines = [f"job: {{name: {name}}}", "reducers:"]
    lines += [f'  - {{id: r{i}, address: "{address}"}}' for i, address in enumerate(reducers)]
    lines += ['security:', '  tls: "on"']
    lines += [f"  {key}: {value}" for key, value in {"authority": authority, **more}.items() if value]
    path.write_text("\n".join(lines) + "\n")
    return path


class User:
    """Programs are in one folder for each machine."""

    def __init__(self, folders):
        self.folders = dict(zip(MACHINES, folders))

    def argv(self, machine, name, *arguments):
        """A command of ours, or of the system if its name is a path."""
        argv = ["ip", "netns", "exec", machine, *USER, self.folders[machine] / name, *arguments]
        return list(map(str, argv))

    def start(self, machine, argv, log, **env):
        with open(HOME / log, "ab") as out:
            return subprocess.Popen(self.argv(machine, *argv), env=environment(**env), cwd=HOME, stdout=out, stderr=out)

    def on(self, machine, *argv, **env):
        return must(self.argv(machine, *argv), env=environment(**env))

    def certificates(self, script):
        names = [f"reducer:{address},127.0.0.1" for address in MACHINES.values()]
        must([*USER, "bash", script, TLS, *names], env=environment())
        for machine, address in MACHINES.items():
            job(machine, ["10.99.0.1:7600"], certificate=TLS / f"{address}.pem", key=TLS / f"{address}.key")

    def reducer(self, machine, port=7600):
        """Starts a reducer with TLS, control and metrics; returns it when it answers."""
        ports = {"--listen": f"0.0.0.0:{port}", "--grpc": f"127.0.0.1:{port + 1}", "--http": f"127.0.0.1:{port + 2}"}
        options = ["--config", HOME / f"{machine}.yaml", "--insecure", *(x for pair in ports.items() for x in pair)]
        process = self.start(machine, ["reduction-server", *options], "reducer.log")
        ask = self.argv(machine, "reductionctl", "status", ports["--grpc"], "--authority", TLS / "ca.pem")
        for _ in range(300):
            if subprocess.run(ask, capture_output=True).returncode == 0:
                return process
            time.sleep(0.1)
        return sys.exit(f"the reducer does not answer: {(HOME / 'reducer.log').read_text()}")

    def ranks(self, argv, config, run, nodes=1, where=tuple(MACHINES), **env):
        """Starts the ranks of machines, `nodes` on each; returns them."""
        started = []
        for i, machine in enumerate(where):
            for local in range(nodes):
                env |= {"RANK": i * nodes + local, "WORLD_SIZE": len(where) * nodes, "LOCAL_RANK": local,
                        "LOCAL_WORLD_SIZE": nodes, "MASTER_ADDR": MACHINES[where[0]], "MASTER_PORT": 29500,
                        "REDUCTION_RUN": run, "REDUCTION_JOB": run, "REDUCTION_CONFIG": config}  # fmt: skip
                env["USE_LIBUV"] = 0  # Debian 13 builds torch without it
                started.append(self.start(machine, argv, f"{run}.log", **env))
        return started

    def end(self, started, run):
        statuses = [process.wait(120) for process in started]
        if any(statuses):
            logs = "".join((HOME / name).read_text() for name in (f"{run}.log", "reducer.log"))
            sys.exit(f"{run}: exit statuses {statuses}\n{logs}")

    def metrics(self, machine):
        page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7602/metrics').read().decode())"
        return self.on(machine, "/usr/bin/python3", "-c", page)

    def received(self, machine):
        lines = [line for line in self.metrics(machine).splitlines()
                 if line.startswith("reduction_lane_received_bytes_total")]  # fmt: skip
        return sum(float(line.split()[-1]) for line in lines)

    def look(self, config):
        self.on("m1", "reductionctl", "check", "--connect", config)
        for command in ("status", "doctor"):
            self.on("m0", "reductionctl", command, "127.0.0.1:7601", "--authority", TLS / "ca.pem")
        if not self.received("m0"):
            sys.exit("no metrics")
        done("check --connect, status, doctor, metrics")

    def failover(self, argv):
        """Two machines with two ranks each, which run argv for a long time."""
        second = self.reducer("m1")
        config = job("two", [f"{address}:7600" for address in MACHINES.values()])
        started = self.ranks(argv, config, "loss", 2)
        while self.received("m1") < LATER:
            if any(process.poll() is not None for process in started):
                self.end(started, "loss")
                sys.exit("the job ended before a reducer could be killed")
        os.kill(second.pid, signal.SIGKILL)  # programs before it became it
        second.wait()
        if any(process.poll() is not None for process in started):
            sys.exit("the job ended before the reducer was killed")
        self.end(started, "loss")
        done("failover: a reducer was killed, two nodes with two ranks each went on")

    def hard(self, argv, config, folder):
        """No folder for temporary files that can be executed, no HOME, a folder of ours that cannot be written, and
        other copies of our libraries before the system's."""
        must(["mount", "-o", "remount,noexec", "/tmp"])
        must(["mount", "--bind", folder, folder])
        must(["mount", "-o", "remount,bind,ro", folder])
        broken = HOME / "broken"
        broken.mkdir()
        for name in BROKEN:
            (broken / name).write_bytes(b"no library")
        for libraries in (broken, *HOME.glob("conda")):
            bare = ["/usr/bin/env", "-u", "HOME", f"LD_LIBRARY_PATH={libraries}"]
            self.on("m0", *bare, self.folders["m0"] / "reductionctl", "check", "--connect", config)
            self.on("m0", *bare, self.folders["m0"] / "reductionctl", "status", "127.0.0.1:7601", "--authority",
                    TLS / "ca.pem")  # fmt: skip
            without = ["/usr/bin/env", "-u", "HOME", self.folders["m0"] / argv[0], *argv[1:]]
            name = f"hard-{libraries.name}"
            self.end(self.ranks(without, config, name, LD_LIBRARY_PATH=libraries), name)
        must(["umount", folder])
        done(f"noexec /tmp, no HOME, read-only folder, other libraries in LD_LIBRARY_PATH: {libraries.name}")

    def authorities(self):
        """The system's authorities where RHEL has them, and not Debian."""
        config = job("system", ["10.99.0.1:7600"], authority=None)
        shutil.rmtree("/usr/lib/ssl", ignore_errors=True)
        debian = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
        debian.rename("/root/ca-certificates.crt")
        argv = self.argv("m1", "reductionctl", "check", "--connect", config)
        refused = subprocess.run(argv, capture_output=True, text=True)
        if refused.returncode != 1 or "certificate" not in refused.stderr:
            sys.exit(f"a certificate of an unknown authority was not refused: {refused.stdout}{refused.stderr}")
        bundle = pathlib.Path("/etc/pki/tls/certs/ca-bundle.crt")
        bundle.parent.mkdir(parents=True)
        shutil.copy(TLS / "ca.pem", bundle)
        self.on("m1", "reductionctl", "check", "--connect", config)
        pathlib.Path("/root/ca-certificates.crt").rename(debian)  # pip wants it
        done("the system's authorities are found where RHEL has them")

    def stop(self, reducer):
        reducer.terminate()
        if reducer.wait(60):
            sys.exit(f"the reducer ended with {reducer.returncode} after SIGTERM")
