// One subscription of one tab: what it asks for, and how far it is.
import { Coalesce } from "./coalesce";
import { endsInitial, keyOf, versionOf } from "./keys";
import type { StreamEvent } from "./protocol";

export const updateInterval = 250; // of a row, in milliseconds

export class Subscription {
  readonly watch: boolean;
  readonly pending = new Coalesce(updateInterval);
  resourceVersion: string | undefined;
  synced: boolean;
  final = false; // an error that asking again does not change
  told = false; // the tab knows that it is synced
  toldVersion: string | undefined; // and how far it is

  constructor(readonly id: number, readonly path: string, resourceVersion?: string) {
    this.watch = /[?&]watch=true(&|$)/.test(path);
    this.resourceVersion = this.toldVersion = resourceVersion;
    this.synced = resourceVersion !== undefined;
  }

  // address is the path that is asked for now: from where the watch is, if it is anywhere.
  address(): string {
    if (!this.watch || this.resourceVersion === undefined) return this.path;
    const [path, query] = split(this.path);
    query.delete("sendInitialEvents");
    query.delete("resourceVersionMatch");
    query.set("resourceVersion", this.resourceVersion);
    return `${path}?${query.toString()}`;
  }

  // restart forgets what was received; the next address starts over.
  restart(): void {
    this.resourceVersion = this.toldVersion = undefined;
    this.synced = this.told = false;
    this.pending.clear();
  }

  // event takes an event in. It returns false for one that was received already over the stream before.
  event(event: StreamEvent): boolean {
    const version = versionOf(event.object);
    if (event.type === "BOOKMARK") {
      if (endsInitial(event.object)) this.synced = true;
      if (this.synced && version !== undefined) this.resourceVersion = version;
      return true;
    }
    if (this.synced && version !== undefined) {
      if (!newer(version, this.resourceVersion)) return false;
      this.resourceVersion = version;
    }
    this.pending.add(keyOf(event.object), event);
    return true;
  }
}

function split(path: string): [string, URLSearchParams] {
  const at = path.indexOf("?");
  return at < 0 ? [path, new URLSearchParams()] : [path.slice(0, at), new URLSearchParams(path.slice(at + 1))];
}

// newer compares two versions of the fleet, which are numbers below 2^53.
function newer(a: string, b: string | undefined): boolean {
  if (b === undefined) return true;
  const x = Number(a), y = Number(b);
  return Number.isNaN(x) || Number.isNaN(y) ? a !== b : x > y;
}
