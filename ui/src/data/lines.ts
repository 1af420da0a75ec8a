// lines yields each line of a body, parsed as JSON. A line that is cut off by the end is not yielded.
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<unknown, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      let text = decoder.decode(value, { stream: true });
      let end = text.indexOf("\n");
      while (end >= 0) {
        const line = rest.join("") + text.slice(0, end);
        rest = [];
        if (line.trim() !== "") yield JSON.parse(line) as unknown;
        text = text.slice(end + 1);
        end = text.indexOf("\n");
      }
      if (text !== "") rest.push(text);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
