import { useEffect, useState } from "preact/hooks";
import { get, statusFrom } from "../../data/api";
import type { Kind } from "../../data/kinds";
import type { KubeObject } from "../../data/types";
import { Compare, type CompareColumn } from "../../pieces/compare";
import { Drawer, Empty, Loading, many } from "../../ui";
import { objectPath, parseID } from "./model";

const most = 8; // columns that one can still read

// ChosenDrawer compares the objects that are selected in the list.
export function ChosenDrawer({ kind, keys, onClose }: { kind: Kind; keys: readonly string[]; onClose: () => void }) {
  const [columns, set] = useState<CompareColumn[] | undefined>(undefined);
  const [turn, setTurn] = useState(0);
  const some = keys.slice(0, most);
  useEffect(() => {
    const abort = new AbortController();
    void Promise.all(some.map((key) => columnOf(kind, key, abort.signal))).then((all) => { if (!abort.signal.aborted) set(all); });
    return () => abort.abort();
  }, [some.join(" "), turn]);
  return (
    <Drawer id="compare" width={820} title={`Compare ${many(some.length, kind.kind.split(".")[0] ?? "object", kind.plural)}`} onClose={onClose}
      sub={<>{keys.length > most && <>the first {most} of {keys.length} · </>}<button type="button" class="link" onClick={() => setTurn(turn + 1)}>Read again</button></>}>
      {some.length < 2 ? <Empty title="Select two rows or more"><p>Press x on a row to select it.</p></Empty> : columns === undefined ? <Loading /> : <Compare columns={columns} />}
    </Drawer>
  );
}

async function columnOf(kind: Kind, key: string, signal: AbortSignal): Promise<CompareColumn> {
  const id = parseID(key);
  if (id === undefined) return { title: key, object: undefined, note: "not the name of an object" };
  try {
    return { title: key, object: await get<KubeObject>(objectPath(kind, id), { signal }) };
  } catch (error) {
    return { title: key, object: undefined, note: statusFrom(error).message };
  }
}
