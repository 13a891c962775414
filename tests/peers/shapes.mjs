// Takes every object a local Stripe has and lets the TypeScript compiler read it as the type that Stripe's own client gives it:
// a field that is missing, misspelt or of the wrong kind is an error.
//
// node shapes.mjs <base URL> <secret key>; exit code 1 and the complaints if any.

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const [base, key] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));

const kinds = {
  customers: 'Stripe.Customer',
  products: 'Stripe.Product',
  prices: 'Stripe.Price',
  coupons: 'Stripe.Coupon',
  'checkout/sessions': 'Stripe.Checkout.Session',
  'subscriptions?status=all': 'Stripe.Subscription',
  invoices: 'Stripe.Invoice',
  invoice_payments: 'Stripe.InvoicePayment',
  payment_intents: 'Stripe.PaymentIntent',
  payment_methods: 'Stripe.PaymentMethod',
  charges: 'Stripe.Charge',
  refunds: 'Stripe.Refund',
  disputes: 'Stripe.Dispute',
  balance_transactions: 'Stripe.BalanceTransaction',
};

// On the wire these are texts; the client makes numbers of its own kind of them.
const decimals = new Set(['unit_amount_decimal', 'amount_decimal', 'quantity_decimal']);
const plain = (name, value) => (decimals.has(name) ? undefined : value);

let source = "import type Stripe from 'stripe';\n";
source += "type Plain<T> = T extends (infer E)[] ? Plain<E>[] : T extends object ? { [K in keyof T as K extends 'unit_amount_decimal' | 'amount_decimal' | 'quantity_decimal' | 'lastResponse' | 'autoPagingEach' | 'autoPagingToArray' ? never : K]: Plain<T[K]> } : T;\n";
const lines = ['', ''];
let count = 0;
for (const [call, type] of Object.entries(kinds)) {
  const url = `${base}/v1/${call}${call.includes('?') ? '&' : '?'}limit=100`;
  const answer = await (await fetch(url, { headers: { authorization: `Bearer ${key}` } })).json();
  if (!answer.data?.length) {
    console.error(`there is no object of ${call} to look at: ${JSON.stringify(answer).slice(0, 200)}`);
    process.exitCode = 1;
  }
  for (const object of answer.data ?? []) {
    source += `export const o${count++}: Plain<${type}> = ${JSON.stringify(object, plain)};\n`;
    lines.push(`${type} ${object.id}`);
  }
}
// Of events only the names: what they carry is looked at above.
const told = await (await fetch(`${base}/v1/events?limit=100`, { headers: { authorization: `Bearer ${key}` } })).json();
for (const name of new Set(told.data.map((event) => event.type))) {
  source += `export const o${count++}: Stripe.Event['type'] = ${JSON.stringify(name)};\n`;
  lines.push(name);
}

const file = path.join(here, 'shapes.generated.mts');
const options = { strict: true, noEmit: true, skipLibCheck: true, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, target: ts.ScriptTarget.ES2022, types: [] };
const host = ts.createCompilerHost(options);
const read = host.readFile;
const getSourceFile = host.getSourceFile;
host.fileExists = (name) => name === file || fs.existsSync(name);
host.readFile = (name) => (name === file ? source : read(name));
host.getSourceFile = (name, target) => (name === file ? ts.createSourceFile(name, source, target) : getSourceFile(name, target));
const program = ts.createProgram([file], options, host);
const complaints = [...program.getSyntacticDiagnostics(), ...program.getSemanticDiagnostics(), ...program.getGlobalDiagnostics()];
for (const one of complaints) {
  const at = one.file && one.start !== undefined ? one.file.getLineAndCharacterOfPosition(one.start) : undefined;
  const where = at ? lines[at.line] ?? one.file.fileName : '';
  const piece = at ? one.file.text.slice(one.start, one.start + 60).split('\n')[0] : '';
  console.error(`${where}: ${ts.flattenDiagnosticMessageText(one.messageText, ' ').slice(0, 700)} [${piece}]`);
}
console.log(`${count} objects read as Stripe's types`);
if (complaints.length) process.exitCode = 1;
