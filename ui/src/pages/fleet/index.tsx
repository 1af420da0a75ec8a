import { useLive } from "../../data/live";
import type { MemberList } from "../../data/types";
import { Shown } from "../../ui";

export default function FleetPage() {
  const live = useLive<MemberList>("/query/v1/members?summary=true");
  return <Shown live={live}>{(list) => <p>{list.summary?.members}</p>}</Shown>;
}
