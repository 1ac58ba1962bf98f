# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""A reducer listens where its configuration says, on machines that have IPv6 alone, or no address yet.

Not under ThreadSanitizer: the same code as everywhere.
"""

import os
import re
import shutil
import subprocess
import unittest

import harness

# a network card without IPv4, in a network namespace that ends with the reducer
IPV6_ONLY = ("ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && "
             "ip address add fd00::1/64 dev v0 nodad && exec \"$@\"")
NO_ADDRESS = 'ip link set lo up && exec "$@"'


def why_not():
    if os.geteuid() or not shutil.which("ip"):
        return "only root with iproute2 can make a network namespace"
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return made.stderr.strip() if made.returncode else None


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Listen(unittest.TestCase):
    def test_addresses(self):
        for network, address, expected in (
            (IPV6_ONLY, "0.0.0.0:7600", ["0.0.0.0:7600"]),
            (IPV6_ONLY, "[::]:7600", ["[::]:7600"]),
            (IPV6_ONLY, ":7600", ["0.0.0.0:7600", "[::]:7600"]),
            (NO_ADDRESS, "0.0.0.0:7600", ["0.0.0.0:7600"]),
        ):
            with self.subTest(address=address, ipv6=network is IPV6_ONLY):
                with harness.Cluster(start=False, reducers=0) as c:
                    argv = ["unshare", "--net", "sh", "-c", network, "sh", harness.binary("reduction-server"),
                            "--insecure", "--listen", address, "--http", "0.0.0.0:8000"]
                    p = c.start("reducer", argv)
                    for a in expected:
                        p.wait_text(rf"\blistening address={re.escape(a)} ")
                    self.assertIn("http-ready address=0.0.0.0:8000 ", p.err)
                    self.assertEqual(p.stop(), 0, p.report())


if __name__ == "__main__":
    harness.main()
