// Fails when all JavaScript together is larger than what we allow ourselves.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { files } from "./files.mjs";

const limit = 120 * 1024;
const dist = join(dirname(dirname(fileURLToPath(import.meta.url))), "dist");
let sum = 0;
for (const name of files(dist)) {
  if (!name.endsWith(".js.gz")) continue;
  const size = readFileSync(join(dist, name)).length;
  sum += size;
  console.log(`${String(size).padStart(7)}  ${name.slice(0, -3)}`);
}
console.log(`${String(sum).padStart(7)}  of at most ${limit} bytes of JavaScript, gzip`);
if (sum === 0 || sum > limit) process.exitCode = 1;
