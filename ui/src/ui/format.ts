const number = new Intl.NumberFormat("en", { useGrouping: true });

export function count(n: number): string {
  return number.format(n);
}

// many is "1 member", "3 members".
export function many(n: number, one: string, more = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : more}`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = n, unit = -1;
  do { value /= 1024; unit++; } while (value >= 1024 && unit < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit] ?? ""}`;
}

export function clock(at: number): string {
  return new Date(at).toLocaleTimeString("en-GB");
}

// ago is how long before now a time was, as kubectl writes it: 45s, 12m, 3h, 5d.
export function ago(time: string | number, now = Date.now()): string {
  const at = typeof time === "number" ? time : Date.parse(time);
  if (Number.isNaN(at)) return "";
  return duration((now - at) / 1000);
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172_800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86_400)}d`;
}

// seconds reads a duration as Go writes it: 1h2m3.5s.
export function seconds(text: string): number {
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/([\d.]+)(h|ms|m|s)/g)) {
    sum += Number(n) * (unit === "h" ? 3600 : unit === "m" ? 60 : unit === "s" ? 1 : 0.001);
  }
  return sum;
}

// short leaves out what all our policies' names begin with.
export function shortPolicy(name: string): string {
  return name.startsWith("federator.") ? name.slice("federator.".length) : name;
}
