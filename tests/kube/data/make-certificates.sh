#!/usr/bin/env bash
# Makes the certificates of this directory again: two authorities, a server, two clients; valid for 100 years.
set -euo pipefail
cd "$(dirname "$0")"

authority() { # NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 36500 -subj "/CN=$1" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" -keyout "$1.key" -out "$1.crt"
}

signed() { # NAME EXTENSIONS
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 36500 -extfile <(echo "$2") -out "$1.crt"
}

authority ca
authority other-ca
signed server "subjectAltName=DNS:kubernetes.test,IP:127.0.0.1,IP:::1"
signed client "extendedKeyUsage=clientAuth"
signed next-client "extendedKeyUsage=clientAuth"
openssl pkey -in client.key -aes128 -passout pass:secret -out encrypted-client.key
rm -f ./*.csr ./*.srl ca.key other-ca.key
