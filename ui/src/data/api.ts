// Requests to the query API that are answered once. What stays open goes through live.ts.
import type { Status } from "./types";

export class ApiError extends Error {
  constructor(readonly status: Status) {
    super(status.message);
    this.name = "ApiError";
  }
  get code(): number {
    return this.status.code;
  }
}

export const asTable = "application/json;as=Table;g=meta.k8s.io;v=v1";

type Param = string | number | boolean | readonly string[] | undefined | null;

// withQuery is path with the parameters that have a value; a list becomes a parameter for each.
export function withQuery(path: string, params: Record<string, Param>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === "") continue;
    if (typeof value === "object") for (const one of value) query.append(name, one);
    else query.set(name, String(value));
  }
  const text = query.toString();
  if (text === "") return path;
  return path + (path.includes("?") ? "&" : "?") + text;
}

export interface RequestOptions {
  signal?: AbortSignal;
  accept?: string;
  method?: string;
  body?: unknown;
}

let onUnauthorized: () => void = () => {};

// whenUnauthorized names what is called when the server does not know the caller any more.
export function whenUnauthorized(call: () => void): void {
  onUnauthorized = call;
}

export async function request(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json" };
  const init: RequestInit = { method: options.method ?? "GET", headers, credentials: "same-origin", cache: "no-store" };
  if (options.signal !== undefined) init.signal = options.signal;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({ kind: "Status", code: 0, reason: "Unreachable", message: "the server cannot be reached" });
  }
  if (response.ok) return response;
  if (response.status === 401 && path !== "/ui/session") onUnauthorized();
  throw new ApiError(await statusOf(response));
}

export async function statusOf(response: Response): Promise<Status> {
  try {
    const body: unknown = await response.json();
    if (isStatus(body)) return body;
  } catch {
    // not JSON: what follows says what is known
  }
  return { kind: "Status", code: response.status, message: `the server answered ${response.status} ${response.statusText}`.trim() };
}

export function isStatus(value: unknown): value is Status {
  return typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === "Status" &&
    typeof (value as { message?: unknown }).message === "string";
}

export async function get<T>(path: string, options: RequestOptions = {}): Promise<T> {
  return await (await request(path, options)).json() as T;
}

export async function send<T>(method: "POST" | "DELETE", path: string, body?: unknown): Promise<T | undefined> {
  const response = await request(path, { method, body });
  const text = await response.text();
  return text === "" ? undefined : JSON.parse(text) as T;
}

export function statusFrom(error: unknown): Status {
  if (error instanceof ApiError) return error.status;
  return { kind: "Status", code: 0, message: error instanceof Error ? error.message : String(error) };
}
