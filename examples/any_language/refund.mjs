// A refund agent that makes its idempotency key when it sends, and writes it down with the answer.
//
// It must fail: killed between the refund and its own file, it starts again with another key, which the provider
// takes for another refund.
//
//   node refund.mjs STATE_FILE ORDER AMOUNT      environment: PAYMENTS_URL

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";

const [file, order, amount] = process.argv.slice(2);

function store(task) {
  writeFileSync(`${file}.new`, JSON.stringify(task));
  renameSync(`${file}.new`, file);
}

const task = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { order, state: "planned" };
if (task.state === "done") process.exit(0);
store(task);

const key = randomUUID();
const response = await fetch(`${process.env.PAYMENTS_URL}/refunds`, {
  method: "POST",
  headers: { "content-type": "application/json", "idempotency-key": key },
  body: JSON.stringify({ order, amount: Number(amount) }),
});
if (!response.ok) throw new Error(`${order}: ${response.status} ${await response.text()}`);
const { id } = await response.json();
store({ ...task, state: "done", key, refund: id });
