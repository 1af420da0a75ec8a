import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { Dialog } from "../ui/dialog";
import { bind } from "./keyboard";
import { go } from "./location";
import { fixedTargets, searchTargets, type Target } from "./targets";

const open = signal(false);

export function openPalette(): void {
  open.value = true;
}

export function Palette() {
  useLayoutEffect(() => {
    const unbind = bind("mod+k", () => { open.value = !open.value; });
    return () => { unbind(); open.value = false; }; // the next user has not opened it
  }, []);
  return open.value ? <Box /> : null;
}

function Box() {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Target[]>([]);
  const [at, setAt] = useState(0);
  const [looked, setLooked] = useState({ text: "", whole: true });
  useEffect(() => {
    const abort = new AbortController();
    setAt(0);
    setFound([]);
    if (text.trim() === "") return;
    const timer = setTimeout(() => {
      void searchTargets(text.trim(), abort.signal, (some) => { if (!abort.signal.aborted) setFound((before) => [...before, ...some]); })
        .then((whole) => { if (!abort.signal.aborted) setLooked({ text, whole }); }, () => { if (!abort.signal.aborted) setLooked({ text, whole: false }); });
    }, 120);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [text]);
  const targets = [...fixedTargets(text.trim()), ...found].slice(0, 40);
  const close = () => { open.value = false; };
  const choose = (target: Target | undefined) => {
    if (target === undefined) return;
    close();
    go(target.href);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(targets.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") choose(targets[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog label="Go anywhere" class="palette" onClose={close}>
      <input type="text" role="combobox" aria-expanded="true" aria-controls="targets" aria-activedescendant={targets.length > 0 ? `target-${at}` : undefined} aria-label="Go to"
        placeholder="A page, member, kind, policy, Action, or how the name of an object begins" value={text} spellcheck={false} autoComplete="off" onInput={(event) => setText(event.currentTarget.value)} onKeyDown={keys} />
      <ul role="listbox" id="targets" aria-label="Where to">
        {targets.map((target, i) => (
          <li key={target.href + target.what} id={`target-${i}`} role="option" aria-selected={i === at} onPointerMove={() => setAt(i)} onClick={() => choose(target)}>
            <span class="what">{target.what}</span><span class="cut">{target.name}</span><span class="cut dim">{target.more}</span>
          </li>
        ))}
      </ul>
      {targets.length === 0 && <div class="hint">{looked.text !== text ? "Looking …" : looked.whole ? `Nothing that you may read is called or begins with ${text}.` : `Nothing is found that is called ${text}, but not all could be asked.`}</div>}
    </Dialog>
  );
}
