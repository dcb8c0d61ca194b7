#!/bin/sh
# The same refund under a key that names the intent: whoever repeats it says the same.
#
#   sh refund_fixed.sh STATE_FILE ORDER AMOUNT      environment: PAYMENTS_URL
set -eu
[ ! -e "$1" ] || exit 0
curl --silent --show-error --fail --header "Idempotency-Key: refund-$2" \
  --json "{\"order\": \"$2\", \"amount\": $3}" "$PAYMENTS_URL/refunds" > "$1.new"
mv "$1.new" "$1"
