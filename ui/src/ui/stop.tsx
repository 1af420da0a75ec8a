// The place of the stop, which is in reach from anywhere: the default export of pages/actions/stop.tsx.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { session } from "../data/session";

const found = import.meta.glob<{ default: ComponentType }>("../pages/actions/stop.tsx");

export function StopSlot() {
  const [loaded, set] = useState<{ button?: ComponentType }>({});
  const hub = session.value?.hub === true;
  useEffect(() => {
    const load = found["../pages/actions/stop.tsx"];
    if (hub && load !== undefined) load().then((module) => set({ button: module.default }), () => {});
  }, [hub]);
  const Button = loaded.button;
  return Button === undefined || !hub ? null : <Button />;
}
