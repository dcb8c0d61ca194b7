#!/bin/sh
# A refund by curl that is not written down before it is sent, and has no key at all: a restart pays again.
#
#   sh refund.sh STATE_FILE ORDER AMOUNT      environment: PAYMENTS_URL
set -eu
[ ! -e "$1" ] || exit 0
curl --silent --show-error --fail --json "{\"order\": \"$2\", \"amount\": $3}" "$PAYMENTS_URL/refunds" > "$1.new"
mv "$1.new" "$1"
