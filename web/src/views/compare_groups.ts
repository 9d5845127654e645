// Runs that differ in the seed alone, taken together: the same definitions as `quaver compare`.
import { interpolate, type Band, type Curve } from '../series';
import type { Maybe, Run } from '../types';
import { differenceTo } from './compare_data';

export interface SeedGroup {
  key: string;
  label: string;
  runs: Run[]; // by seed
  counted: Run[]; // those that means are over
}

export interface MeanOverSeeds {
  mean: number;
  deviation: Maybe; // σ with n − 1; one value has none
  count: number;
}

export type LossKind = 'final_train_loss' | 'validation_loss';

// The last validation loss where one was evaluated, else the final training loss.
export function lossKindOf(runs: Run[]): LossKind {
  return runs.some((run) => run.validation_loss !== null) ? 'validation_loss' : 'final_train_loss';
}

// A run that failed, was broken off or has no loss is listed and left out of the means.
export function isCounted(run: Run, kind: LossKind): boolean {
  return (run.status === 'finished' || run.status === 'running') && run[kind] !== null;
}

export function seedGroups(chosen: Run[]): SeedGroup[] {
  const kind = lossKindOf(chosen);
  const byKey = new Map<string, Run[]>();
  for (const run of chosen) {
    const key = run.group === '' ? `run ${run.id}` : run.group;
    byKey.set(key, [...(byKey.get(key) ?? []), run]);
  }
  const recipes = [...byKey.values()].map((runs) => runs[0]?.recipe);
  return [...byKey].map(([key, unsorted]) => {
    const runs = [...unsorted].sort((a, b) => a.seed - b.seed);
    const first = runs[0] as Run;
    const unique = recipes.filter((recipe) => recipe === first.recipe).length === 1;
    return { key, label: runs.length > 1 && unique ? first.recipe : first.name, runs, counted: runs.filter((run) => isCounted(run, kind)) };
  });
}

// fp32 before tf32, fp16, bf16 and everything narrower, which keep their order.
const byWidth = ['fp32', 'tf32', 'fp16', 'bf16'];
export function widest(runs: Run[]): Run | undefined {
  const rank = (run: Run) => (byWidth.includes(run.recipe) ? byWidth.indexOf(run.recipe) : byWidth.length);
  return runs.reduce<Run | undefined>((best, run) => (best && rank(best) <= rank(run) ? best : run), undefined);
}

export function meanOver(values: Maybe[]): MeanOverSeeds | null {
  const known = values.filter((value): value is number => value !== null);
  if (known.length === 0) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, deviation: known.length > 1 ? Math.sqrt(squares / (known.length - 1)) : null, count: known.length };
}

// In percent of the base's loss at the same seed; null where the base has no such run.
export function gapOf(run: Run, base: SeedGroup, kind: LossKind): Maybe {
  const from = base.counted.find((other) => other.seed === run.seed)?.[kind] ?? null;
  const own = isCounted(run, kind) ? run[kind] : null;
  return from === null || own === null || from === 0 ? null : (100 * (own - from)) / from;
}

export function accuracyPercent(run: Run): Maybe {
  return run.validation_accuracy === null ? null : 100 * run.validation_accuracy;
}

// Mean ± σ at the places of the first curve that all of them reach.
export function meanBand(curves: Curve[]): { x: number[] } & Band {
  const band: { x: number[] } & Band = { x: [], low: [], high: [], mean: [] };
  for (const at of curves[0]?.x ?? []) {
    const values = curves.map((one) => interpolate(one.x, one.y, at));
    const found = values.includes(null) ? null : meanOver(values);
    if (!found) continue;
    band.x.push(at);
    band.mean.push(found.mean);
    band.low.push(found.mean - (found.deviation ?? 0));
    band.high.push(found.mean + (found.deviation ?? 0));
  }
  return band;
}

// The differences to the base's run of the same seed.
export function pairedDifferences(group: SeedGroup, base: SeedGroup, curveOf: (run: Run) => Curve): Curve[] {
  return group.counted.flatMap((run) => {
    const from = base.counted.find((other) => other.seed === run.seed);
    return from ? [differenceTo(curveOf(from), curveOf(run))] : [];
  });
}
