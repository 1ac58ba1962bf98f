# SPDX-License-Identifier: Apache-2.0
"""Bare Debian roots: one base for each Debian, and overlays over it in namespaces of their own."""

import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

DEBIANS = {"11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky"}
HOME = "/home/user"
TREE = f"{HOME}/reduction-server"
USER = 1000
# what a login shell of Debian has
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
BARE = ("git", "make", "ca-certificates", "mount")  # the last one is on every Debian, but mmdebstrap leaves it out
PRIVATE = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
# Whatever is in a root only for the sake of time. Debian's files stay as they are.
TOOLS = "/opt/fresh"
SHARED = f"{TOOLS}/shared"  # a folder that all roots of a Debian have in common in one run
CCACHE = f"""#!/bin/sh
export CCACHE_DIR={TOOLS}/objects CCACHE_COMPILERCHECK=content CCACHE_UMASK=000 CCACHE_MAXSIZE=2G
export CCACHE_STATSLOG={TOOLS}/compilations
LD_LIBRARY_PATH=$(echo {TOOLS}/usr/lib/*-linux-gnu) exec {TOOLS}/usr/bin/ccache "$@"
"""
# dpkg calls this instead of its dpkg-deb. Decompression takes half of the time of an
# installation.
DPKG_DEB = f"""#!/bin/sh
deb=$(readlink -f "$2")
case "$1 $deb" in
"--fsys-tarfile /var/cache/apt/archives/"*) ;;
*) exec /usr/bin/dpkg-deb "$@" ;;
esac
tar={SHARED}/unpacked/${{deb##*/}}.tar
if [ ! -e "$tar" ]; then
  new=$(mktemp "$tar.XXXXXX") && /usr/bin/dpkg-deb --fsys-tarfile "$deb" >"$new" && mv "$new" "$tar" || exit
fi
exec cat "$tar"
"""
PHASE = re.compile(r"^  ([a-z ]+): ended after (\d+) s$", re.M)  # as deploy/calm.sh prints it
IN_MEMORY = 6 << 30  # bytes of free memory for each root that runs; one with all packages and a build has 4 GiB
MOUNT = """set -e
if [ -n "$4" ]; then
  mount -t tmpfs -o "size=$4" tmpfs "$2/files"
fi
mkdir "$2/files/upper" "$2/files/work"
mount -t overlay overlay -o lowerdir="$1",upperdir="$2/files/upper",workdir="$2/files/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
mount --bind "$2/archives" var/cache/apt/archives
mount --bind "$3" opt/fresh/objects
mount --bind "$5" opt/fresh/shared
cp /etc/resolv.conf etc/resolv.conf
# not chroot, from which no machine with a root of its own could be made
mkdir old
pivot_root . old
umount -l /old
rmdir /old
echo ready
exec sleep infinity
"""


class RootError(Exception):
    """A root cannot be made; the text says why."""


def fits_in_memory(roots):
    """Whether that many roots at a time can have their files in memory, which takes a third of the time off."""
    found = re.search(r"^MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.M)
    return bool(found) and int(found[1]) * 1024 >= roots * IN_MEMORY


def kept(cache, what, debian):
    """Folder of a Debian that stays from run to run: its downloaded packages, or its compiled objects."""
    folder = cache / what / debian
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Base:
    """The bare root of one Debian with a clone of the project, which roots overlay. Read-only once made."""

    made, making = {}, collections.defaultdict(threading.Lock)  # by Debian

    @classmethod
    def of(cls, debian, cache, clone):
        """The base of a Debian, which is made at the first call."""
        with cls.making[debian]:
            if debian not in cls.made:
                cls.made[debian] = cls(debian, DEBIANS[debian], cache, clone)
            return cls.made[debian]

    def __init__(self, debian, suite, cache, clone):
        self.debian, self.path, self.clone = debian, cache / "run" / f"base-{debian}", clone
        argv = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(BARE)}"]
        # a mirror may keep the state of a day; then the lists of a Debian that is not released expire
        argv += ['--aptopt=Acquire::Check-Valid-Until "false"', suite, self.path]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RootError(f"mmdebstrap {suite} failed:\n{done.stderr}")
        # installers and container engines write this file, mmdebstrap does not
        (self.path / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
        # a root that is thrown away need not survive a power cut
        (self.path / "etc/dpkg/dpkg.cfg.d/fast").write_text("force-unsafe-io\n")
        self._shell("apt-get -q update")
        home = self.path / HOME[1:]
        home.mkdir(parents=True)
        shutil.copytree(clone, self.path / TREE[1:], symlinks=True)
        # a root without the package passwd has no useradd
        self._shell(
            f"echo user:x:{USER}:{USER}::{HOME}:/bin/bash >>/etc/passwd && echo user:x:{USER}: >>/etc/group && "
            f"echo 'user:*:19000:0:99999:7:::' >>/etc/shadow && chown -R user:user {HOME}"
        )
        self._make_tools()
        self.objects = kept(cache, "objects", debian)
        self.objects.chmod(0o777)
        self.shared = cache / "run" / f"shared-{debian}"
        (self.shared / "unpacked").mkdir(parents=True)

    def _make_tools(self):
        """A compiler cache that Debian does not know as installed, and a faster dpkg-deb for dpkg."""
        self._shell(
            f"mkdir -p {TOOLS}/objects {SHARED} {TOOLS}/bin /var/cache/apt/archives && cd {TOOLS} && "
            "touch compilations && chmod 666 compilations && apt-get -q download ccache "
            "$(apt-cache depends ccache | sed -nE 's/.*Depends: (libhiredis.*|libxxhash0|libblake3-0|libfmt.*)/\\1/p') "
            "&& "
            "for f in *.deb; do dpkg -x $f .; done && rm *.deb"
        )
        tools = self.path / TOOLS[1:]
        for program, text in ((tools / "ccache", CCACHE), (tools / "bin/dpkg-deb", DPKG_DEB)):
            program.write_text(text)
            program.chmod(0o755)
        path = f"{TOOLS}/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # apt's own, with a folder before it
        (self.path / "etc/apt/apt.conf.d/fast").write_text(f'DPkg::Path "{path}";\n')

    def _shell(self, command):
        argv = [
            *PRIVATE,
            "sh",
            "-c",
            'mount -t proc proc "$1/proc"; mount --bind /dev "$1/dev"; cp /etc/resolv.conf "$1/etc/"; '
            'exec chroot "$1" sh -c "$2"',
            "sh",
            self.path,
            command,
        ]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode != 0:
            raise RootError(f"Debian {self.debian}: {command} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


class Root:
    """One root, ready to run commands between __enter__ and __exit__. Used by one thread.

    Its files are in memory or on the disk, its downloaded packages always on the disk: links to those kept."""

    harvest = threading.Lock()

    def __init__(self, base, name, cache, ccache, memory):
        self.base, self.name, self.cache, self.ccache, self.memory = base, name, cache, ccache, memory
        self.dir = cache / "run" / name.replace(" ", "-")
        self.archives = self.dir / "archives"
        self._holder = None
        self._compilations = 0
        self.phases = {}
        self.options = None  # of the command line, for the steps

    def __enter__(self):
        for folder in ("files", "root", "archives"):
            (self.dir / folder).mkdir(parents=True)
        for deb in kept(self.cache, "packages", self.base.debian).iterdir():
            os.link(deb, self.archives / deb.name)
        # ends with this program, however that ends
        argv = ["setpriv", "--pdeathsig", "KILL", *PRIVATE, "sh", "-c", MOUNT, "sh", self.base.path, self.dir]
        argv += [self.base.objects, str(IN_MEMORY) if self.memory else "", self.base.shared]
        self._holder = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if self._holder.stdout.readline() != "ready\n":
            raise RootError(f"{self.name}: the root cannot be mounted: {self._holder.stderr.read().strip()}")
        return self

    def __exit__(self, *exc):
        self._holder.send_signal(signal.SIGKILL)  # --kill-child: all of its namespace goes with it
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()
        with Root.harvest:
            folder = kept(self.cache, "packages", self.base.debian)
            for deb in self.archives.glob("*.deb"):
                if not (folder / deb.name).exists():
                    os.link(deb, folder / deb.name)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _argv(self, user, env, folder):
        inner = next(
            pathlib.Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split().__iter__()
        )
        variables = dict(ENVIRONMENT, HOME=HOME if user else "/root", **(env or {}))
        if self.ccache:
            variables["CCACHE"] = f"{TOOLS}/ccache"
        who = ["chroot", "--userspec=user:user", "/"] if user else []
        return [
            "nsenter",
            f"--target={inner}",
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            *who,
            "env",
            "-i",
            *(f"{k}={v}" for k, v in variables.items()),
            "sh",
            "-c",
            f'cd {folder} && exec sh -c "$1"',
            "sh",
        ]

    def run(self, command, log=None, user=False, env=None, folder=TREE, limit=3600):
        """Runs a shell command line in the root, as root or as the ordinary user. Returns (status, output); the output
        goes to the end of the log as it comes. Status 124: it did not end within the limit, in seconds."""
        with log.open("a+b") if log else tempfile.TemporaryFile() as f:
            f.write(f"{'$' if user else '#'} {command}\n".encode())
            f.flush()
            start = f.tell()
            process = subprocess.Popen(
                [*self._argv(user, env, folder), command],
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status, last = process.wait(limit), ""
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status, last = 124, f"\ndid not end within {limit} s\n"
            f.seek(start)
            output = f.read().decode("utf-8", "replace")
            f.seek(0, os.SEEK_END)
            f.write(f"{last}exit status {status}\n".encode())
        for phase, seconds in PHASE.findall(output):
            self.phases[phase] = self.phases.get(phase, 0) + int(seconds)
        return status, output

    def compilations(self):
        """How many compilations there were since the last call, and how many of them ccache had in store."""
        lines = self.must(f"cat {TOOLS}/compilations", folder="/").splitlines()
        results = [line for line in lines if line in ("direct_cache_hit", "preprocessed_cache_hit", "cache_miss")]
        new, self._compilations = results[self._compilations :], len(results)
        return len(new), len(new) - new.count("cache_miss")

    def must(self, command, **options):
        """As run(), for preparations: raises RootError if it fails."""
        status, output = self.run(command, **options)
        if status != 0:
            raise RootError(f"{self.name}: {command} failed with {status}: {output[-1500:]}")
        return output
