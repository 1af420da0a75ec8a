// The order of a matrix: what is alike lies together.

// seriate orders vectors: the heaviest first, then always the one that is most like the last (by cosine), of those
// equally alike the heavier, then the earlier. It is stable, and of n² steps only up to limit; the rest is by weight.
export function seriate(vectors: readonly ReadonlyMap<number, number>[], limit = 400): number[] {
  const weight = vectors.map((vector) => { let sum = 0; for (const v of vector.values()) sum += v; return sum; });
  const norm = vectors.map((vector) => { let sum = 0; for (const v of vector.values()) sum += v * v; return Math.sqrt(sum); });
  const byWeight = vectors.map((_, i) => i).sort((a, b) => (weight[b] ?? 0) - (weight[a] ?? 0) || a - b);
  const rest = byWeight.slice(0, limit).filter((i) => (weight[i] ?? 0) > 0);
  const after = byWeight.filter((i) => !rest.includes(i));
  const order: number[] = [];
  let last = rest.shift();
  while (last !== undefined) {
    order.push(last);
    let best = -1, bestLike = -1;
    for (let k = 0; k < rest.length; k++) {
      const like = cosine(vectors, norm, last, rest[k] ?? 0);
      if (like > bestLike + 1e-12) { best = k; bestLike = like; }
    }
    last = best < 0 ? undefined : rest.splice(best, 1)[0];
  }
  return [...order, ...after];
}

function cosine(vectors: readonly ReadonlyMap<number, number>[], norm: readonly number[], a: number, b: number): number {
  const x = vectors[a], y = vectors[b];
  const product = (norm[a] ?? 0) * (norm[b] ?? 0);
  if (x === undefined || y === undefined || product === 0) return 0;
  const [small, large] = x.size < y.size ? [x, y] : [y, x];
  let sum = 0;
  for (const [key, value] of small) sum += value * (large.get(key) ?? 0);
  return sum / product;
}
