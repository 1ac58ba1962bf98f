#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts the daemon that REDUCTION_ROLE names, server or agent, with options from the
# arguments; or the command that the arguments are, such as reductionctl. The
# configuration is REDUCTION_CONFIG, or /etc/reduction/reduction.yaml if there. With
# REDUCTION_NOTICE (auto, aws, gcp or azure) the provider's notice that the machine ends is
# watched, and drains a reducer.
set -eu
case ${1-} in
'' | -*) ;;
*) exec "$@" ;;
esac
case ${REDUCTION_ROLE-} in
server | agent) ;;
*)
	echo "entry: REDUCTION_ROLE: found \"${REDUCTION_ROLE-}\", expected server or agent" >&2
	exit 2
	;;
esac
file=${REDUCTION_CONFIG-}
[ -n "$file" ] || [ ! -e /etc/reduction/reduction.yaml ] || file=/etc/reduction/reduction.yaml
if [ -n "${REDUCTION_NOTICE-}" ] && [ "$REDUCTION_ROLE" = server ]; then
	notice=/run/reduction/notice
	reductionctl notice --provider "$REDUCTION_NOTICE" --file "$notice" </dev/null &
	set -- --notice "$notice" "$@"
fi
exec "reduction-$REDUCTION_ROLE" ${file:+--config "$file"} "$@"
