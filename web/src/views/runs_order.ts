// Which runs a filter leaves, and in which order.
import type { Run } from '../types';

export type SortKey = 'status' | 'name' | 'model' | 'recipe' | 'step' | 'loss' | 'validation_loss' | 'validation_accuracy' | 'tokens_per_second'
  | 'alerts' | 'updated' | 'started';

export const sortKeys: SortKey[] = ['status', 'name', 'model', 'recipe', 'step', 'loss', 'validation_loss', 'validation_accuracy',
  'tokens_per_second', 'alerts', 'updated', 'started'];

// Every word must occur somewhere.
export function matchesFilter(run: Run, filter: string): boolean {
  const text = [run.name, run.trained_name, run.model, run.recipe, run.status, run.id, run.store_folder, run.note, ...run.tags].join('\n').toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

// Runs without a value come last whichever way it is sorted; equal ones by newest first.
export function compareRuns(a: Run, b: Run, key: SortKey, descending: boolean): number {
  const shown = key === 'loss' ? 'final_train_loss' : key;
  const left = a[shown];
  const right = b[shown];
  if (left === null || right === null) {
    if (left === right) return b.started - a.started;
    return left === null ? 1 : -1;
  }
  const order = typeof left === 'number' && typeof right === 'number'
    ? left - right
    : String(left).localeCompare(String(right), undefined, { numeric: true });
  return (descending ? -order : order) || b.started - a.started;
}
