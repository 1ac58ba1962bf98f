#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a certificate authority and certificates for reducers and workers, for tests and
# for small installations.
set -eu

usage() {
	cat <<-'END'
	Usage: make-certs.sh [OPTION]... FOLDER [KIND:NAME[,NAME]...]...

	Makes in FOLDER, which is made if need be, an authority (ca.pem, ca.key) unless one is there already, and for each
	further argument a certificate and a key, FOLDER/NAME.pem and FOLDER/NAME.key, named after the first NAME:
	  reducer:NAME,...  for a reducer; names are host names or IP addresses by which workers reach it
	  client:NAME,...   for workers and agents that reducers with security.tls: mutual ask for one

	  --days N          how long certificates are valid [365]; the authority: ten times that
	  --rsa             RSA keys of 3072 bits, in place of ECDSA P-256, which takes less time
	  --help            this text

	Keys can be read by their owner alone, certificates by all who may enter FOLDER. Keep ca.key off the machines that
	need no new certificates.

	Example: make-certs.sh /etc/reduction/tls reducer:r0.cluster,10.0.0.11 reducer:r1.cluster client:resnet
	END
}

fail() {
	echo "make-certs: $1" >&2
	exit "${2:-1}"
}

days=365
algorithm="-algorithm EC -pkeyopt ec_paramgen_curve:P-256"
while [ $# -gt 0 ]; do
	case $1 in
	--days)
		[ $# -gt 1 ] || fail "--days: expected a number of days" 2
		days=$2
		shift
		;;
	--rsa) algorithm="-algorithm RSA -pkeyopt rsa_keygen_bits:3072" ;;
	-h | --help)
		usage
		exit 0
		;;
	-*) fail "found unknown option $1; try --help" 2 ;;
	*) break ;;
	esac
	shift
done
case $days in
'' | *[!0-9]* | 0*) fail "--days: found \"$days\", expected a number of days from 1 on" 2 ;;
esac
[ $# -gt 0 ] || fail "found no folder; try --help" 2
command -v openssl >/dev/null || fail "openssl was not found: install Debian's package openssl"

# all names before anything is made
folder=$1
shift
for arg in "$@"; do
	case $arg in
	reducer:?* | client:?*) ;;
	*) fail "found \"$arg\", expected reducer:NAME,... or client:NAME,..." 2 ;;
	esac
	case ${arg#*:} in
	,* | *, | *,,* | *[!A-Za-z0-9._:,-]* | .* | -*)
		fail "found \"$arg\", expected names of letters, digits, '.', '_' and '-' with commas between" 2
		;;
	esac
done

umask 077
mkdir -p "$folder" || fail "cannot make the folder $folder"
scratch=$(mktemp -d) || fail "no temporary folder can be made"
trap 'rm -rf "$scratch"' EXIT

new_key() { # new_key FILE: never overwrites half of one
	# shellcheck disable=SC2086 # several words
	openssl genpkey $algorithm -out "$scratch/key" 2>"$scratch/said" || fail "no key can be made: $(cat "$scratch/said")"
	mv "$scratch/key" "$1"
}

if ! [ -e "$folder/ca.key" ] || ! [ -e "$folder/ca.pem" ]; then
	if [ -e "$folder/ca.key" ] || [ -e "$folder/ca.pem" ]; then
		fail "$folder has one of ca.pem and ca.key, expected both or none"
	fi
	new_key "$folder/ca.key"
	openssl req -x509 -new -key "$folder/ca.key" -sha256 -days "$((days * 10))" -subj "/CN=Reduction authority" \
		-addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" \
		-out "$folder/ca.pem"
	chmod 644 "$folder/ca.pem"
	echo "$folder/ca.pem"
fi

for arg in "$@"; do
	kind=${arg%%:*}
	names=${arg#*:}
	first=${names%%,*}
	sans=
	old_ifs=$IFS
	IFS=,
	for name in $names; do
		case $name in
		*:* | [0-9]*.[0-9]*.[0-9]*.[0-9]*) sans="$sans,IP:$name" ;;
		*) sans="$sans,DNS:$name" ;;
		esac
	done
	IFS=$old_ifs
	usage=serverAuth
	[ "$kind" = reducer ] || usage=clientAuth
	cat >"$scratch/extensions" <<-END
	basicConstraints=critical,CA:FALSE
	keyUsage=critical,digitalSignature
	extendedKeyUsage=$usage
	subjectKeyIdentifier=hash
	authorityKeyIdentifier=keyid
	subjectAltName=${sans#,}
	END
	file=$(printf '%s' "$first" | tr : _)
	new_key "$folder/$file.key"
	openssl req -new -key "$folder/$file.key" -subj "/CN=$(printf '%.64s' "$first")" -out "$scratch/request"
	openssl x509 -req -in "$scratch/request" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -sha256 -days "$days" \
		-set_serial "0x$(openssl rand -hex 16 | sed 's/^[89a-f]/1/')" -extfile "$scratch/extensions" \
		-out "$scratch/certificate" 2>"$scratch/said" || fail "no certificate for $first can be made: $(cat "$scratch/said")"
	chmod 644 "$scratch/certificate"
	mv "$scratch/certificate" "$folder/$file.pem"
	echo "$folder/$file.pem"
done
