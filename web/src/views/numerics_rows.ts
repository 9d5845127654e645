// From rows of the heat map to sites, and which rows stand out.
import { isLowPrecision } from '../parts/badges';
import type { Alert, Matrix, MatrixHeader, RunDetail, Severity } from '../types';
import { badFrom, placeOf, type Judging } from '../verdict';
import { severityOfSites } from './suspects';

// The sites that a row stands for, in the order of the run.
export function sitesOfRow(run: Pick<RunDetail, 'sites'>, header: MatrixHeader, row: number): string[] {
  const entry = header.rows[row];
  if (!entry) return [];
  const sites = run.sites.filter((one) => one.role === header.role).map((one) => one.site);
  return sites.slice(entry.first, entry.first + entry.count);
}

export function siteOfRow(run: Pick<RunDetail, 'sites'>, header: MatrixHeader, row: number): string {
  const layer = header.row_names[row] ?? '';
  const named = run.sites.find((one) => one.layer === layer && one.role === header.role);
  return named?.site ?? `${layer}/${header.role}`;
}

// The last step that a column stands for.
export function columnEnd(header: MatrixHeader, column: number): number {
  const first = header.steps[column] ?? 0;
  const next = header.steps[column + 1];
  const last = next !== undefined ? next - 1 : (header.last_step ?? first + header.steps_per_column - 1);
  return Math.max(first, last);
}

export interface WorstCell {
  row: number;
  column: number;
  value: number;
}

// Of each row the worst cell; of those the worst few. Rows with limits are judged by them and by the alerts that held,
// and left out where they are as good as can be; the others by which way the statistic is worse.
export function worstRows(matrix: Matrix, judging: Judging, most: number): WorstCell[] {
  const { rows, columns } = matrix;
  const found: (WorstCell & { badness: number })[] = [];
  for (let row = 0; row < rows; ++row) {
    if (judging.shown && !judging.limits[row]) continue; // in high precision, where the others are not
    const badnessAt = badnessOf(matrix, judging, row);
    let worst = judging.limits[row] ? 0 : -Infinity;
    let at = -1;
    for (let column = 0; column < columns; ++column) {
      const badness = badnessAt(column);
      if (badness > worst) {
        worst = badness;
        at = column;
      }
    }
    if (at >= 0) found.push({ row, column: at, value: matrix.values[row * columns + at] as number, badness: worst });
  }
  return found.sort((a, b) => b.badness - a.badness).slice(0, most);
}

function badnessOf(matrix: Matrix, judging: Judging, row: number): (column: number) => number {
  const { values, columns } = matrix;
  const { aggregate } = matrix.header;
  const sign = aggregate === 'min' ? -1 : 1;
  const limits = judging.limits[row];
  const forced = judging.forced.filter((one) => one.row === row);
  return (column) => {
    const value = values[row * columns + column] as number;
    if (!limits) return aggregate === 'absmax' ? Math.abs(value) : sign * value;
    const place = placeOf(value, limits, judging.statistic);
    return forced.some((one) => column >= one.from && column <= one.to) ? Math.max(badFrom, place || 0) : place;
  };
}

// Rows that are kept in high precision do not stretch the range of the others.
export function lowPrecisionValues(run: Pick<RunDetail, 'sites'>, matrix: Matrix): Float32Array {
  const sites = run.sites.filter((one) => one.role === matrix.header.role);
  const low = matrix.header.rows.map(({ first, count: many }) => sites.slice(first, first + many).some((one) => isLowPrecision(one.rows)));
  if (!low.includes(true) || !low.includes(false)) return matrix.values;
  const kept = matrix.values.slice();
  low.forEach((is, row) => is || kept.fill(NaN, row * matrix.columns, (row + 1) * matrix.columns));
  return kept;
}

export function rowOfSite(run: Pick<RunDetail, 'sites'>, matrix: Matrix, site: string | null): number | null {
  if (!site) return null;
  const layers = run.sites.filter((one) => one.role === matrix.header.role).map((one) => one.site);
  const index = layers.indexOf(site);
  const row = matrix.header.rows.findIndex((one) => index >= one.first && index < one.first + one.count);
  return index < 0 || row < 0 ? null : row;
}

// Rows of the map whose sites have alerts, whatever statistic is shown.
export function marksOf(run: Pick<RunDetail, 'sites'>, matrix: Matrix, alerts: Alert[]): Map<number, Severity> {
  const marks = new Map<number, Severity>();
  for (const [site, severity] of severityOfSites(alerts)) {
    const row = rowOfSite(run, matrix, site);
    if (row !== null && marks.get(row) !== 'critical') marks.set(row, severity);
  }
  return marks;
}
