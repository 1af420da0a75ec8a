// Preferences of this browser, such as column widths. Nothing that was read from the fleet is kept.
export function kept<T>(name: string, fallback: T): T {
  try {
    const text = localStorage.getItem(`federator.${name}`);
    return text === null ? fallback : JSON.parse(text) as T;
  } catch {
    return fallback; // storage is off, or has something else
  }
}

export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(`federator.${name}`, JSON.stringify(value));
  } catch {
    // storage is off or full: it is forgotten with the page
  }
}
