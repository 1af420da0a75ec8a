// The SharedWorker: one stream for all tabs of this browser.
import { Streams } from "./streams";
import type { FromStream, ToStream } from "./protocol";

const streams = new Streams();
const scope = globalThis as unknown as { onconnect: ((event: MessageEvent) => void) | null };

scope.onconnect = (event) => {
  const port = event.ports[0];
  if (port === undefined) return;
  const receive = streams.attach((message: FromStream) => port.postMessage(message));
  port.onmessage = (message: MessageEvent<ToStream & { lock?: string }>) => {
    receive(message.data);
    const lock = message.data.lock;
    // A tab that crashes says no bye, but its lock becomes free.
    if (lock !== undefined && "locks" in navigator) void navigator.locks.request(lock, () => receive({ t: "bye" }));
  };
  port.start();
};
