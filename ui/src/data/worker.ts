// The SharedWorker: one stream for all tabs of this browser.
import { Streams } from "./streams";
import type { FromStream, ToStream } from "./protocol";

const streams = new Streams();
const scope = globalThis as unknown as { onconnect: ((event: MessageEvent) => void) | null };

scope.onconnect = (event) => {
  const port = event.ports[0];
  if (port === undefined) return;
  const receive = streams.attach((message: FromStream) => port.postMessage(message));
  port.onmessage = (message: MessageEvent<ToStream | { t: "lock"; name: string }>) => {
    if (message.data.t !== "lock") receive(message.data);
    // A tab that crashes says no bye, but its lock becomes free.
    else void navigator.locks.request(message.data.name, () => receive({ t: "bye" }));
  };
  port.start();
};
