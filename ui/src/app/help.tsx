import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { Dialog } from "../ui/dialog";
import { bind } from "./keyboard";

const open = signal(false);

const keys: readonly [string[], string][] = [
  [["/"], "filter what is shown"],
  [["⌘K", "Ctrl K"], "go to a page, member, kind, policy, Action or object"],
  [["j", "k", "↓", "↑"], "next and previous row"],
  [["Enter"], "open the row beside the list; again, go into what is open"],
  [["x"], "select the row"],
  [["Escape"], "close what was opened last; back"],
  [["?"], "this help"],
];

export function Help() {
  useLayoutEffect(() => {
    const unbind = bind("?", () => { open.value = true; });
    return () => { unbind(); open.value = false; };
  }, []);
  if (!open.value) return null;
  return (
    <Dialog label="Keys" onClose={() => { open.value = false; }}>
      <div class="inner">
        <h2>Keys</h2>
        <dl class="keys">{keys.map(([names, what]) => [<dt key={what}>{names.map((name) => <kbd key={name}>{name}</kbd>)}</dt>, <dd key={`${what}.`}>{what}</dd>])}</dl>
        <p class="dim">Every filter, selection and drawer is in the address: copy it to send what you see. <a href="/ui/licenses.txt">Licences</a></p>
      </div>
    </Dialog>
  );
}
