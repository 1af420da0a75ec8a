import { useMemo } from "preact/hooks";
import { href, param, setParams } from "../../app/location";
import { withQuery } from "../../data/api";
import { kinds, listPath, type Kind } from "../../data/kinds";
import { useLive, useOnce } from "../../data/live";
import { session } from "../../data/session";
import type { Actions, Finding, Graph, GraphNode, KubeObject, Violations } from "../../data/types";
import { Compare } from "../../pieces/compare";
import { Yaml } from "../../pieces/yaml";
import { CopyAs, Drawer, Empty, SeverityMark, Shown, StateMark, Tabs, ago, many, plain, quote, shortPolicy } from "../../ui";
import { objectPath, type ObjectID } from "./model";
import { treeOf } from "./tree";

interface ObjectProps {
  kind: Kind;
  id: ObjectID;
  onClose: () => void;
  hrefOf: (key: string) => string;
}

export function ObjectDrawer({ kind, id, onClose, hrefOf }: ObjectProps) {
  const path = objectPath(kind, id);
  const object = useLive<KubeObject>(path);
  const findings = useLive<Violations>(withQuery("/query/v1/violations", { member: id.member, kind: kind.kind, namespace: id.namespace, search: id.name, limit: 1000 }));
  const mine = useMemo(() => (findings.value?.items ?? []).filter((finding) => finding.subject.name === id.name && (finding.subject.namespace ?? "") === id.namespace), [findings.value]);
  const hub = session.value?.hub === true;
  const tab = param("tab") || "yaml";
  const tabs = [{ id: "yaml", title: "YAML" }, { id: "related", title: "Related" }, { id: "violations", title: "Violations", n: findings.value === undefined ? undefined : mine.length }, ...(hub ? [{ id: "actions", title: "Actions" }] : []), { id: "elsewhere", title: "In other members" }];
  const namespace = id.namespace === "" ? "" : ` -n ${quote(id.namespace)}`;
  return (
    <Drawer id="object" title={id.name} onClose={onClose}
      sub={<>{kind.kind} · {id.namespace !== "" && <>{id.namespace} · </>}<a href={href(`/members/${id.member}`)}>{id.member}</a></>}
      tools={<CopyAs commands={{ kubectl: `kubectl --context ${id.member} get ${kind.resource} ${quote(id.name)}${namespace} -o yaml`, federator: `federator tree ${kind.resource} ${quote(id.name)}${namespace} --member ${id.member}`, curl: path }} />}>
      <Tabs label="About the object" tabs={tabs} chosen={tab} onChoose={(next) => setParams({ tab: next === "yaml" ? null : next }, { replace: true })}>
        {tab === "yaml" && <Shown live={object}>{(value) => <ObjectYaml object={value} at={param("at")} />}</Shown>}
        {tab === "related" && <Related kind={kind} id={id} />}
        {tab === "violations" && <Shown live={findings}>{(value) => <>
          {mine.length > 0 ? <FindingList findings={mine} /> : value.continue !== undefined && value.continue !== "" ? <Empty title="Not known"><p>There are more findings on objects of such names than are looked through.</p></Empty> : <Empty title="No violations"><p>No policy finds anything on this object, at revision {value.revision}.{value.synced ? "" : " Not all policies have seen all of it yet."}</p></Empty>}
          {(value.withheld?.length ?? 0) > 0 && <p class="dim">{many(value.withheld?.length ?? 0, "policy", "policies")} withheld: you may not see what {value.withheld?.length === 1 ? "it finds" : "they find"}.</p>}
          {(value.failed?.length ?? 0) > 0 && <p class="wrong">{many(value.failed?.length ?? 0, "policy", "policies")} failed in part: {value.failed?.map(shortPolicy).join(", ")}</p>}
        </>}</Shown>}
        {tab === "actions" && <Tried kind={kind} id={id} />}
        {tab === "elsewhere" && <Elsewhere kind={kind} id={id} hrefOf={hrefOf} />}
      </Tabs>
    </Drawer>
  );
}

function ObjectYaml({ object, at }: { object: KubeObject; at: string }) {
  const isRedacted = object.metadata.annotations?.["federator.dev/redacted"] === "true";
  const redacted = useMemo(() => (isRedacted ? (path: string, value: unknown) => /^\/(data|stringData|binaryData)\//.test(path) && value === "" : undefined), [isRedacted]);
  return (
    <>
      {isRedacted && <p class="dim">Federator does not hold the values of this object, only its keys.</p>}
      <Yaml value={object} {...(redacted === undefined ? {} : { redacted })} {...(at === "" ? {} : { at })} />
    </>
  );
}

export function FindingList({ findings }: { findings: readonly Finding[] }) {
  return (
    <ul class="findings">
      {findings.map((finding) => (
        <li key={finding.policy}>
          <div class="bar"><SeverityMark severity={finding.severity} /> <a href={href("/violations", { policy: finding.policy, ...(finding.subject.member === undefined ? {} : { member: finding.subject.member }) })}>{shortPolicy(finding.policy)}</a>{finding.state !== "Known" && <StateMark state={finding.state} />}</div>
          {finding.violations?.map((violation, i) => <p key={i}>{plain(violation.msg)}{violation.exempt !== undefined && violation.exempt !== "" && <span class="pill">exempt: {violation.exempt}</span>} {violation.firstSeen !== undefined && <span class="dim">for {ago(violation.firstSeen)}</span>}</p>)}
          {finding.message !== undefined && <p class="dim">{finding.message}</p>}
          {finding.gaps?.map((gap, i) => <p key={i} class="dim hatched">not known: {[gap.member, gap.kind, gap.state, gap.failure].filter(Boolean).join(" · ")}</p>)}
        </li>
      ))}
    </ul>
  );
}

function Tried({ kind, id }: { kind: Kind; id: ObjectID }) {
  const live = useLive<Actions>(withQuery("/query/v1/actions", { member: id.member, kind: kind.kind, namespace: id.namespace, name: id.name, limit: 50 }));
  return (
    <Shown live={live}>{(value) => value.items.length === 0
      ? <Empty title="Nothing was written"><p>Federator has no Action on this object{value.hidden !== undefined && value.hidden > 0 ? `; ${value.hidden} are not shown to you` : ""}.</p></Empty>
      : <ul class="findings">{value.items.map((action) => (
        <li key={action.name}><div class="bar"><StateMark state={action.phase} /> <a href={href("/actions", { open: action.name })}>{action.verb}</a> <span class="dim">{shortPolicy(action.policy)}{action.startedAt === undefined ? "" : `, ${ago(action.startedAt)} ago`}</span></div>{action.message !== undefined && <p>{action.message}</p>}</li>
      ))}</ul>}</Shown>
  );
}


function Related({ kind, id }: { kind: Kind; id: ObjectID }) {
  const live = useLive<Graph>(withQuery("/query/v1/related", { resource: kind.resource, member: id.member, namespace: id.namespace, name: id.name, depth: 3 }));
  return <Shown live={live}>{(graph) => graph.nodes.length <= 1 ? <Empty title="Related to nothing"><p>Nothing that you may read owns or uses this object, or is owned or used by it, at revision {graph.revision}.</p></Empty> : <Tree graph={graph} />}</Shown>;
}

// Tree shows each node once, below the one through which it was reached first.
function Tree({ graph }: { graph: Graph }) {
  const lines = useMemo(() => treeOf(graph), [graph]);
  return (
    <>
      <ul class="tree">{lines.map((line) => (
        <li key={line.node} style={{ paddingLeft: `${line.depth * 18}px` }}>
          {line.relation !== "" && <span class="dim">{line.relation} </span>}
          <NodeLink node={graph.nodes[line.node]} own={graph.nodes[0]?.member ?? ""} />
        </li>
      ))}</ul>
      {graph.truncated === true && <p class="dim">There is more than is shown.</p>}
      {(graph.notSynced?.length ?? 0) > 0 && <p class="hatched">Not all is known: {graph.notSynced?.map((n) => `${n.member} ${n.kind ?? ""} ${n.state}`).join(", ")}</p>}
    </>
  );
}

function NodeLink({ node, own }: { node: GraphNode | undefined; own: string }) {
  if (node === undefined) return null;
  const group = node.apiVersion.includes("/") ? node.apiVersion.split("/")[0] ?? "" : "";
  const kind = kinds.value.find((k) => k.group === group && (k.kind.split(".")[0] ?? "") === node.kind.split(".")[0]);
  const text = <>{node.kind.split(".")[0]} <b>{node.name}</b></>;
  return <>
    {kind === undefined ? text : <a href={href("/explore", { q: `${kind.resource} name:${node.name}`, open: `${node.member}/${node.namespace ?? ""}/${node.name}` })}>{text}</a>}
    {node.member !== own && <span class="pill">{node.member}</span>}
  </>;
}

// Elsewhere compares the object with those of its name in other members.
function Elsewhere({ kind, id, hrefOf }: { kind: Kind; id: ObjectID; hrefOf: (key: string) => string }) {
  const path = withQuery(listPath(kind, id.namespace), { fieldSelector: `metadata.name=${id.name}`, limit: 100 });
  const live = useOnce<{ metadata?: { continue?: string }; items: KubeObject[] }>(path);
  return (
    <Shown live={live}>{(list) => {
      const memberOf = (object: KubeObject) => object.metadata.annotations?.["federator.dev/member"] ?? "";
      const sorted = [...list.items].sort((a, b) => Number(memberOf(b) === id.member) - Number(memberOf(a) === id.member));
      if (sorted.length === 0) return <Empty title="Not found"><p>No member that you may read has {id.namespace === "" ? "" : `${id.namespace}/`}{id.name}.</p></Empty>;
      if (sorted.length === 1) return <Empty title="Only here"><p>No other member that you may read has {id.namespace === "" ? "" : `${id.namespace}/`}{id.name}.</p></Empty>;
      return <>
        <p class="dim">{(list.metadata?.continue ?? "") === "" ? `${many(sorted.length, "member has", "members have")} this object.` : `The first ${sorted.length} members that have this object; there are more.`} <button type="button" class="link" onClick={live.again}>Read again</button></p>
        <Compare columns={sorted.map((object) => ({ title: memberOf(object), object, href: hrefOf(`${memberOf(object)}/${id.namespace}/${id.name}`) }))} />
      </>;
    }}</Shown>
  );
}
