#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in a bare root, as root: what a user does who has a wheel and nothing else of ours, on two machines. The
machines are network namespaces. Ranks and reducers run as an ordinary user.

    wheel_user.py WHEEL

Prints a line for each step that succeeded, and ends with an error at the first that did not.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HOME = pathlib.Path("/home/user")
ENV = HOME / "env"
BIN = ENV / "bin"
TLS = HOME / "tls"
USER = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
MACHINES = {"m0": "10.99.0.1", "m1": "10.99.0.2"}
SUM = """
import numpy, reduction
x = numpy.ones(1 << 20, numpy.float32)
with reduction.Communicator() as comm:
    comm.all_reduce(x, op="sum")
    assert (x == comm.world_size).all()
"""
TRAIN = """
import torch, reduction.torch
torch.distributed.init_process_group("reduction")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
rank = torch.distributed.get_rank()
for step in range(20):
    model.zero_grad()
    model(torch.full((4, 100), float(rank + 1))).sum().backward()
assert torch.allclose(model.module.weight.grad, torch.full((10, 100), 10.0)), model.module.weight.grad
torch.distributed.destroy_process_group()
"""
LOSS = """
import os, pathlib, time, numpy, reduction
with reduction.Communicator() as comm:
    for step in range(400):
        x = numpy.full(1 << 18, step, numpy.float32)
        comm.all_reduce(x)
        assert (x == step * comm.world_size).all()
        if step == 100:
            pathlib.Path(f"/home/user/half{comm.rank}").touch()
        while step == 100 and not pathlib.Path("/home/user/killed").exists():
            time.sleep(0.01)
"""
# names of the libraries that are carried; a conda environment has other builds of them
BROKEN = ("libssl.so.3", "libcrypto.so.3", "libuv.so.1", "libyaml-0.so.2", "libprotobuf-c.so.1", "libgrpc.so.29",
          "libabsl_base.so.20220623", "libgnutls.so.30", "libz.so.1.broken")  # fmt: skip


def must(argv, **more):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, cwd=HOME, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


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


def start(machine, argv, log, **env):
    argv = ["ip", "netns", "exec", machine, *USER, *argv]
    with open(HOME / log, "ab") as out:
        return subprocess.Popen(list(map(str, argv)), env=environment(**env), cwd=HOME, stdout=out, stderr=out)


def on(machine, *argv, **env):
    return must(["ip", "netns", "exec", machine, *USER, *argv], env=environment(**env))


def reducer(machine, config, port):
    """Starts a reducer with TLS, control and metrics; returns it when it answers."""
    ports = {"--listen": f"0.0.0.0:{port}", "--grpc": f"127.0.0.1:{port + 1}", "--http": f"127.0.0.1:{port + 2}"}
    argv = [BIN / "reduction-server", "--config", config, "--insecure", *(x for pair in ports.items() for x in pair)]
    process = start(machine, argv, "reducer.log")
    for _ in range(300):
        asked = subprocess.run(["ip", "netns", "exec", machine, BIN / "reductionctl", "status", ports["--grpc"],
                                "--authority", TLS / "ca.pem"], capture_output=True)  # fmt: skip
        if asked.returncode == 0:
            return process
        time.sleep(0.1)
    return sys.exit(f"the reducer does not answer: {(HOME / 'reducer.log').read_text()}")


def ranks(code, config, run, nodes=1, **env):
    """Starts two machines' ranks, `nodes` on each; returns them."""
    started = []
    for i, machine in enumerate(MACHINES):
        for local in range(nodes):
            where = {"RANK": i * nodes + local, "WORLD_SIZE": 2 * nodes, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": nodes}
            where |= {"MASTER_ADDR": MACHINES["m0"], "MASTER_PORT": 29500, "REDUCTION_RUN": run}
            where["USE_LIBUV"] = 0  # Debian 13 builds torch without it
            argv = [BIN / "python", "-c", code]
            started.append(start(machine, argv, f"{run}.log", **where, REDUCTION_CONFIG=config, **env))
    return started


def end(started, run):
    statuses = [process.wait(120) for process in started]
    if any(statuses):
        logs = "".join((HOME / name).read_text() for name in (f"{run}.log", "reducer.log"))
        sys.exit(f"{run}: exit statuses {statuses}\n{logs}")


def job(name, reducers, authority="/home/user/tls/ca.pem", **more):
    path = HOME / f"{name}.yaml"
    lines = [f"job: {{name: {name}}}", "reducers:"]
    lines += [f'  - {{id: r{i}, address: "{address}"}}' for i, address in enumerate(reducers)]
    lines += ['security:', '  tls: "on"']
    lines += [f"  {key}: {value}" for key, value in {"authority": authority, **more}.items() if value]
    path.write_text("\n".join(lines) + "\n")
    return path


def everything():
    return {p for p in ENV.rglob("*") if "__pycache__" not in p.parts}


def done(text):
    print(f"ok {text}", flush=True)


def first_sum(wheel):
    began = time.monotonic()
    must([*USER, BIN / "pip", "-q", "install", "--no-index", "--disable-pip-version-check", wheel], env=environment())
    share = next(ENV.glob("lib/python3*/site-packages/reduction/share"))
    names = [f"reducer:{address},127.0.0.1" for address in MACHINES.values()]
    must([*USER, "bash", share / "make-certs.sh", TLS, *names], env=environment())
    for machine, address in MACHINES.items():
        job(machine, ["10.99.0.1:7600"], certificate=TLS / f"{address}.pem", key=TLS / f"{address}.key")
    config = job("job", ["10.99.0.1:7600"])
    first = reducer("m0", HOME / "m0.yaml", 7600)
    end(ranks(SUM, config, "first"), "first")
    done(f"first sum over two machines {time.monotonic() - began:.1f} s after pip install began")
    return first, config


def look(config):
    on("m1", BIN / "reductionctl", "check", "--connect", config)
    for command in ("status", "doctor"):
        on("m0", BIN / "reductionctl", command, "127.0.0.1:7601", "--authority", TLS / "ca.pem")
    page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7602/metrics').read().decode())"
    if "reduction_lane_received_bytes_total" not in on("m0", "python3", "-c", page):
        sys.exit("no metrics")
    done("check --connect, status, doctor, metrics")


def failover(first):
    second = reducer("m1", HOME / "m1.yaml", 7600)
    config = job("two", [f"{address}:7600" for address in MACHINES.values()])
    started = ranks(LOSS, config, "loss", 2)
    while not all((HOME / f"half{rank}").exists() for rank in range(4)):
        if any(process.poll() for process in started):
            end(started, "loss")
        time.sleep(0.05)
    pid = must(["ip", "netns", "pids", "m1"]).split()
    killed = [p for p in pid if os.readlink(f"/proc/{p}/exe").endswith("/reduction-server")]
    for p in killed:
        os.kill(int(p), signal.SIGKILL)
    (HOME / "killed").touch()
    end(started, "loss")
    second.wait()
    done("failover: a reducer was killed, two nodes with two ranks each went on")
    return first


def hard(config):
    """No folder for temporary files that can be executed, no HOME, packages that cannot be written, and other copies of
    our libraries before the system's."""
    must(["mount", "-o", "remount,noexec", "/tmp"])
    site = next(ENV.glob("lib/python3*/site-packages"))
    must(["mount", "--bind", site, site])
    must(["mount", "-o", "remount,bind,ro", site])
    broken = HOME / "broken"
    broken.mkdir()
    for name in BROKEN:
        (broken / name).write_bytes(b"no library")
    bare = f"env -u HOME LD_LIBRARY_PATH={broken}".split()
    on("m0", *bare, BIN / "reductionctl", "check", "--connect", config)
    where = {"LD_LIBRARY_PATH": broken}
    end(ranks(SUM.replace("import numpy", "import os; os.environ.pop('HOME')\nimport numpy"), config, "hard", **where),
        "hard")  # fmt: skip
    must(["umount", site])
    done("noexec /tmp, no HOME, read-only packages, broken libraries in LD_LIBRARY_PATH")


def authorities():
    """The system's authorities where RHEL has them, and not Debian."""
    config = job("system", ["10.99.0.1:7600"], authority=None)
    shutil.rmtree("/usr/lib/ssl", ignore_errors=True)
    debian = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    debian.rename("/root/ca-certificates.crt")
    argv = ["ip", "netns", "exec", "m1", *USER, BIN / "reductionctl", "check", "--connect", config]
    refused = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    if refused.returncode != 1 or "certificate" not in refused.stderr:
        sys.exit(f"a certificate of an unknown authority was not refused: {refused.stdout}{refused.stderr}")
    bundle = pathlib.Path("/etc/pki/tls/certs/ca-bundle.crt")
    bundle.parent.mkdir(parents=True)
    shutil.copy(TLS / "ca.pem", bundle)
    on("m1", BIN / "reductionctl", "check", "--connect", config)
    pathlib.Path("/root/ca-certificates.crt").rename(debian)  # pip wants it
    done("the system's authorities are found where RHEL has them")


def plugin():
    folder = on("m0", BIN / "python", "-c", "import reduction; print(reduction.__path__[0] + '/lib')").strip()
    line = on("m0", BIN / "python", "-m", "reduction.nccl")
    if folder not in line:
        sys.exit(f"{line} does not name {folder}")
    on("m0", BIN / "python", "-c", f"import ctypes; ctypes.CDLL('{folder}/libnccl-net-reduction.so')")
    done("NCCL plugin")


def main():
    wheel = sys.argv[1]
    machines()
    must([*USER, "python3", "-m", "venv", "--system-site-packages", ENV], env=environment())
    before = everything()
    first, config = first_sum(wheel)
    if subprocess.run(["python3", "-c", "import torch"], capture_output=True).returncode == 0:
        end(ranks(TRAIN, config, "train", 2), "train")
        done("PyTorch's DDP on two nodes with two ranks each")
    look(config)
    failover(first)
    hard(config)
    authorities()
    plugin()
    first.terminate()
    if first.wait(60):
        sys.exit(f"the reducer ended with {first.returncode} after SIGTERM")
    must([*USER, BIN / "pip", "-q", "uninstall", "-y", "reduction"], env=environment())
    left = everything() - before
    if left:
        sys.exit(f"pip uninstall leaves {', '.join(map(str, left))}")
    done("pip uninstall leaves nothing")


if __name__ == "__main__":
    main()
