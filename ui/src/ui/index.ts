// The shared components.
export { CopyAs, copy, curlOf, type Commands } from "./copyas";
export { plain } from "./plain";
export { quote } from "./quote";
export { Dialog } from "./dialog";
export { Drawer } from "./drawer";
export { Facets, type Facet, type FacetValue } from "./facets";
export { ago, bytes, clock, count, duration, many, seconds, shortPolicy } from "./format";
export { Freshness, useMembers, type FreshnessProps } from "./freshness";
export { SeverityMark, StateMark, ToneShape, severities, severityRank, toneOf, type Tone } from "./marks";
export { Menu } from "./menu";
export { Before, Empty, Failed, Forbidden, Loading, Lock, Shown, Unknown } from "./states";
export { Table, type Column, type TableProps } from "./table";
export { Tabs, type Tab } from "./tabs";
export { FilterBox } from "./filterbox";
export { reveal, windowOf } from "./window";
export { say } from "../app/notices";
