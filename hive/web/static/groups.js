// Selects runs by pattern, and joins the curves of runs that differ only in their seed to a median with a band.

const GRID = 240; // points of a median

// pattern: names with * and ?, separated by blanks or commas
export function matching(runs, pattern) {
  const tests = pattern.split(/[\s,]+/).filter(Boolean).map((part) =>
    new RegExp(`^${part.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*+/g, ".*").replaceAll("?", ".")}$`));
  return runs.filter((run) => tests.some((test) => test.test(run)));
}

// curves: [{x, y}] -> {x, y, low, high}: median and quartiles on common places, over the curves that reach there
export function median(curves) {
  const known = curves.filter((curve) => curve.x.length);
  if (known.length < 2) return known[0] ? { ...known[0] } : { x: [], y: [] };
  const begin = Math.max(...known.map((c) => c.x[0])), end = Math.max(...known.map((c) => c.x.at(-1)));
  const result = { x: [], y: [], low: [], high: [] };
  for (let n = 0; n < GRID; n += 1) {
    const x = begin + ((end - begin) * n) / (GRID - 1);
    const values = known.filter((c) => x <= c.x.at(-1)).map((c) => interpolated(c, x)).filter((v) => v !== null);
    if (!values.length) continue;
    values.sort((a, b) => a - b);
    result.x.push(x);
    result.y.push(quantile(values, 0.5));
    result.low.push(quantile(values, 0.25));
    result.high.push(quantile(values, 0.75));
  }
  return result;
}

function interpolated({ x, y }, place) {
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= place) low = middle;
    else high = middle;
  }
  if (y[low] === null || y[high] === null) return y[low] ?? y[high];
  const width = x[high] - x[low];
  return width > 0 ? y[low] + (Math.min(Math.max(place - x[low], 0), width) / width) * (y[high] - y[low]) : y[high];
}

function quantile(sorted, part) {
  const place = part * (sorted.length - 1), low = Math.floor(place);
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
