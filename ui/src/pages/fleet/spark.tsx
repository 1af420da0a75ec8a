// Spark is a small line; where nothing is known it has a gap.
export function Spark({ values, label, width = 92, height = 18 }: { values: readonly (number | null)[]; label: string; width?: number; height?: number }) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  let path = "", drawing = false;
  values.forEach((value, i) => {
    if (value === null) { drawing = false; return; }
    const x = (i / Math.max(1, values.length - 1)) * width, y = height - 2 - (value / most) * (height - 4);
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!drawing && (values[i + 1] ?? null) === null) path += "h1";
    drawing = true;
  });
  return <svg width={width} height={height} role="img" aria-label={label} class="spark"><path d={path} fill="none" stroke="currentColor" stroke-width="1.5" /></svg>;
}
