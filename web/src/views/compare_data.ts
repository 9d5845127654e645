// The arithmetic of comparing runs: differences to a base, and how much seeds alone make.
import { interpolate, noiseBand, smooth, tailMean, type Band, type Curve } from '../series';
import type { Maybe, Run, Series, SeriesByName } from '../types';

// Runs that differ from the base in seed and name alone, the base among them.
export function groupOf(base: Run | undefined, runs: Run[]): Run[] {
  if (!base || base.group === '') return base ? [base] : [];
  return runs.filter((run) => run.group === base.group);
}

export function smoothed(series: Series | undefined, halfLife: number): Curve {
  if (!series) return { x: [], y: [] };
  return { x: series.step, y: smooth(series.step, series.value, halfLife) };
}

// Other minus base at the steps of the base that both have.
export function differenceTo(base: Curve, other: Curve): Curve {
  const found: Curve = { x: [], y: [] };
  base.x.forEach((step, i) => {
    const from = base.y[i] ?? null;
    const to = interpolate(other.x, other.y, step);
    if (from === null || to === null) return;
    found.x.push(step);
    found.y.push(to - from);
  });
  return found;
}

// The group's mean ± 2 deviations, as a difference to the base, at the base's steps.
export function seedBand(base: Curve, group: Curve[]): { x: number[] } & Band {
  const band = noiseBand(group, base.x, 2);
  const minusBase = (values: Maybe[]) => values.map((value, i) => {
    const from = base.y[i] ?? null;
    return value === null || from === null ? null : value - from;
  });
  return { x: base.x, low: minusBase(band.low), high: minusBase(band.high), mean: minusBase(band.mean) };
}

export interface FinalFigures {
  loss: Maybe; // the final training loss
  validation: Maybe;
  gradientNorm: Maybe;
}

export function finalMetrics(run: Run, series: SeriesByName | undefined): FinalFigures {
  return {
    loss: run.final_train_loss,
    validation: run.validation_loss,
    gradientNorm: tailMean(series?.gradient_norm, 0.05),
  };
}
