import { readdirSync } from "node:fs";
import { join } from "node:path";

// files are the paths of all files below dir, sorted.
export function files(dir, below = "") {
  const found = [];
  for (const entry of readdirSync(join(dir, below), { withFileTypes: true })) {
    const path = join(below, entry.name);
    if (entry.isDirectory()) found.push(...files(dir, path));
    else found.push(path);
  }
  return found.sort();
}
