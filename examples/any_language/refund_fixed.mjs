// The same refund agent, with its idempotency key written down before it sends.
//
//   node refund_fixed.mjs STATE_FILE ORDER AMOUNT      environment: PAYMENTS_URL

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";

const [file, order, amount] = process.argv.slice(2);

function store(task) {
  writeFileSync(`${file}.new`, JSON.stringify(task));
  renameSync(`${file}.new`, file);
}

const task = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { order, state: "planned", key: randomUUID() };
if (task.state === "done") process.exit(0);
store(task);

const response = await fetch(`${process.env.PAYMENTS_URL}/refunds`, {
  method: "POST",
  headers: { "content-type": "application/json", "idempotency-key": task.key },
  body: JSON.stringify({ order, amount: Number(amount) }),
});
if (!response.ok) throw new Error(`${order}: ${response.status} ${await response.text()}`);
const { id } = await response.json();
store({ ...task, state: "done", refund: id });
