// Compares two builds: the files that there are, and what they are decompressed. Compressed bytes
// depend on the version of the compressor.
//
//	node scripts/compare.mjs BEFORE AFTER
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { files } from "./files.mjs";

const [before, after] = process.argv.slice(2);

function content(dir, name) {
  const bytes = readFileSync(join(dir, name));
  if (name.endsWith(".br")) return brotliDecompressSync(bytes);
  if (name.endsWith(".gz")) return gunzipSync(bytes);
  return bytes;
}

const [committed, built] = [new Set(files(before)), new Set(files(after))];
const problems = [
  ...[...committed].filter((name) => !built.has(name)).map((name) => `${name} is not built any more`),
  ...[...built].filter((name) => !committed.has(name)).map((name) => `${name} is not committed`),
  ...[...built].filter((name) => committed.has(name) && !content(before, name).equals(content(after, name))).map((name) => `${name} is built with other content`),
];
for (const problem of problems) console.error(problem);
if (problems.length > 0) {
  console.error("the web UI that is committed is not what ui/ is: run make ui");
  process.exitCode = 1;
}
