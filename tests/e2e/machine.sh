#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Becomes a machine of its own with systemd as process 1, for machine.py:
#
#     unshare --mount --pid --ipc --uts --net --fork --kill-child machine.sh FOLDER CGROUP FILES [V1]
#
# FOLDER is empty. CGROUP is the name of a new control group, which the caller removes.
# The root is an overlay over that of this system, so that nothing that the machine writes
# gets there. The content of the folder FILES is copied into it. The control groups are
# those of version 2. With V1, the path of the control group of this process in version 1
# of the memory controller, that one is there too: a system that uses it has none in
# version 2.
set -eu

folder=$1 cgroup=$2 files=$3 v1=${4-}
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root" "$folder/cgroup"

# a control group below that of this process, which the machine sees as the root of all
mount -t cgroup2 cgroup2 "$folder/cgroup"
mkdir "$folder/cgroup/$cgroup"
echo 0 >"$folder/cgroup/$cgroup/cgroup.procs"
umount "$folder/cgroup"
if [ -n "$v1" ]; then
	mount -t cgroup -o memory memory "$folder/cgroup"
	mkdir "$folder/cgroup$v1/$cgroup"
	echo 0 >"$folder/cgroup$v1/$cgroup/cgroup.procs"
	umount "$folder/cgroup"
fi

root=$folder/root
mount -t overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" machine "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
	major=${device#*:}
	mknod -m 666 "$root/dev/${device%%:*}" c "${major%:*}" "${major#*:}"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"

# no unit but those of systemd and of the test
mount -t tmpfs -o mode=755 units "$root/etc/systemd/system"
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-logind.service systemd-tmpfiles-setup.service \
	systemd-tmpfiles-setup-dev.service systemd-tmpfiles-clean.timer systemd-resolved.service getty.target \
	console-getty.service systemd-networkd.service systemd-timesyncd.service e2scrub_reap.service tmp.mount; do
	ln -s /dev/null "$root/etc/systemd/system/$unit"
done
: >"$root/etc/fstab"
cp -r "$files/." "$root/"

cd "$root"
mkdir old
# shellcheck disable=SC2016 # the inner shell expands $0
exec unshare --cgroup sh -c '
	set -eu
	if [ -n "$0" ]; then
		# systemd takes both versions if it finds them so, and the controllers of
		# version 1 that /proc/cgroups names
		mount -t tmpfs -o mode=755 cgroups sys/fs/cgroup
		mkdir sys/fs/cgroup/unified sys/fs/cgroup/memory
		mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
		mount -t cgroup -o memory memory sys/fs/cgroup/memory
		grep -E "^(#|memory)" proc/cgroups >run/cgroups
		mount --bind run/cgroups proc/cgroups
	else
		mount -t cgroup2 cgroup2 sys/fs/cgroup
	fi
	pivot_root . old
	umount -l /old
	mount --make-rshared / # as systemd expects it; what it mounts for credentials comes from a namespace of its own
	exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		/lib/systemd/systemd --system --log-target=journal --show-status=no' "$v1"
