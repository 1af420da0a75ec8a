import { setParams } from "../../app/location";
import { useLive } from "../../data/live";
import type { FindingGroup, Violations } from "../../data/types";
import { Empty, Failed, Loading, SeverityMark, Table, count, shortPolicy, type Column } from "../../ui";
import { groupPath, type Chosen } from "./model";

// Groups counts violations by up to two keys. A row narrows the list to what it counts.
export function Groups({ by, chosen }: { by: readonly string[]; chosen: Chosen }) {
  const live = useLive<Violations>(groupPath(chosen, by));
  if (live.value === undefined) return live.error === undefined ? <Loading /> : <Failed status={live.error} />;
  const columns: Column<FindingGroup>[] = [
    ...by.map((name, i): Column<FindingGroup> => ({ id: name, title: name.charAt(0).toUpperCase() + name.slice(1), width: 240, render: (group) => name === "severity" ? <SeverityMark severity={group.key[i] ?? ""} /> : group.key[i] === "" ? <span class="dim">(none)</span> : name === "policy" ? shortPolicy(group.key[i] ?? "") : group.key[i] })),
    { id: "violations", title: "Violations", width: 100, right: true, line: 2, render: (group) => count(group.violations) },
    { id: "exempt", title: "Exempt", width: 90, right: true, line: 2, render: (group) => count(group.exempt) },
    ...(chosen.exempt === "" ? [{ id: "unknown", title: "Not known", width: 104, right: true, line: 2 as const, render: (group: FindingGroup) => count(group.unknown + group.errors) }] : []),
    { id: "subjects", title: "Objects", width: 90, right: true, line: 0, render: (group) => count(group.subjects) },
  ];
  return (
    <Table id={`violations-by-${by.join("-")}`} label={`Violations by ${by.join(" and ")}`} columns={columns} rows={live.value.groups ?? []} rowKey={(group) => group.key.join("\u0000")}
      onOpen={(group) => setParams({ ...Object.fromEntries(by.map((name, i) => [name, [group.key[i] ?? ""]])), by: null })}
      bar={<span class="dim">{count((live.value.groups ?? []).length)} groups{live.value.truncated === true ? ", and others: there are more than the server gives" : ""}</span>}
      empty={<Empty title="No violations"><p>No policy finds anything that you may see, with these filters, at revision {live.value.revision}.</p></Empty>} />
  );
}
