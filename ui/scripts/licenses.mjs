// Writes the licences of the packages whose code is in dist to dist/licenses.txt.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ui = dirname(dirname(fileURLToPath(import.meta.url)));

function embedded(names, found = new Map()) {
  for (const name of names) {
    if (found.has(name)) continue;
    const dir = join(ui, "node_modules", name);
    const manifest = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    const file = readdirSync(dir).sort().find((f) => /^licen[cs]e/i.test(f));
    if (file === undefined) throw new Error(`${name} has no licence file`);
    found.set(name, `${name} ${manifest.version} (${manifest.license})\n\n${readFileSync(join(dir, file), "utf8").trim()}\n`);
    embedded(Object.keys(manifest.dependencies ?? {}), found);
  }
  return found;
}

const manifest = JSON.parse(readFileSync(join(ui, "package.json"), "utf8"));
const texts = [...embedded(Object.keys(manifest.dependencies))].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, text]) => text);
writeFileSync(join(ui, "dist", "licenses.txt"), texts.join(`\n${"-".repeat(78)}\n\n`));
