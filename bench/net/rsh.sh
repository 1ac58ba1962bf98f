#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The remote shell for MPI's launchers: rsh.sh [OPTION]... ADDRESS COMMAND... runs the
# command in the host of the lab NETLAB_PREFIX that has this address (10.99.0.<i+1>), as
# bench/net/lab.py does. The launchers pass options of ssh (-x, -p 22, ...), which are
# ignored.
set -eu
: "${NETLAB_PREFIX:?set by bench/net only}"
while [ $# -gt 0 ]; do
	case $1 in
	-p | -l | -o | -i) shift 2 ;;
	-*) shift ;;
	*) break ;;
	esac
done
case ${1:-} in
10.99.0.*) ;;
*)
	echo "rsh.sh: found host \"${1:-}\", expected an address of the lab, 10.99.0.1 and so on" >&2
	exit 2
	;;
esac
host=$((${1##*.} - 1))
shift
# shellcheck disable=SC2016 # the inner shell expands it; as with ssh, the words are joined and read by a shell
exec ip netns exec "${NETLAB_PREFIX}h$host" unshare --uts sh -c 'hostname "$0" && eval "exec $*"' "h$host" "$@"
