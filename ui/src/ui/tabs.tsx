import type { ComponentChildren } from "preact";

export interface Tab {
  id: string;
  title: string;
  n?: number | undefined;
}

export function Tabs({ tabs, chosen, onChoose, label, children }: { tabs: readonly Tab[]; chosen: string; onChoose: (id: string) => void; label: string; children: ComponentChildren }) {
  const keys = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    onChoose(next.id);
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-tab="${CSS.escape(next.id)}"]`)?.focus();
    event.preventDefault();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={keys}>
        {tabs.map((tab) => (
          <button key={tab.id} type="button" role="tab" data-tab={tab.id} id={`tab-${tab.id}`} aria-selected={tab.id === chosen} aria-controls="tabpanel" tabIndex={tab.id === chosen ? 0 : -1} onClick={() => onChoose(tab.id)}>
            {tab.title}{tab.n !== undefined && <span class="n">{tab.n}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tabpanel" aria-labelledby={`tab-${chosen}`}>{children}</div>
    </>
  );
}
