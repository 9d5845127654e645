// From rows of the heat map to sites, and which rows stand out.
import type { Matrix, MatrixHeader, RunDetail } from '../types';

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

// Of each row the worst cell; of those the worst few.
export function worstRows(matrix: Matrix, most: number): WorstCell[] {
  const { values, rows, columns } = matrix;
  const { aggregate } = matrix.header;
  const sign = aggregate === 'min' ? -1 : 1;
  const found: (WorstCell & { badness: number })[] = [];
  for (let row = 0; row < rows; ++row) {
    let worst = -Infinity;
    let at = -1;
    for (let i = row * columns; i < (row + 1) * columns; ++i) {
      const value = values[i] as number;
      const badness = aggregate === 'absmax' && value < 0 ? -value : sign * value;
      if (badness > worst) {
        worst = badness;
        at = i;
      }
    }
    if (at >= 0) found.push({ row, column: at - row * columns, value: values[at] as number, badness: worst });
  }
  return found.sort((a, b) => b.badness - a.badness).slice(0, most);
}
