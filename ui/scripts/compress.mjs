// Writes .br and .gz beside each file of dist, and copies dist to where the binary embeds it.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { files } from "./files.mjs";

const ui = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(ui, "dist");
const embedded = join(dirname(ui), "pkg", "webui", "dist");

for (const name of files(dist)) {
  if (name.endsWith(".br") || name.endsWith(".gz")) continue;
  const text = readFileSync(join(dist, name));
  writeFileSync(join(dist, `${name}.br`), brotliCompressSync(text, {
    params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: text.length },
  }));
  const gz = gzipSync(text, { level: constants.Z_BEST_COMPRESSION });
  gz[9] = 255; // "unknown" in place of the system that this ran on: the same bytes everywhere
  writeFileSync(join(dist, `${name}.gz`), gz);
}
rmSync(embedded, { recursive: true, force: true });
mkdirSync(dirname(embedded), { recursive: true });
cpSync(dist, embedded, { recursive: true });
if (!existsSync(join(embedded, "index.html"))) throw new Error("dist has no index.html");
