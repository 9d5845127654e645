// What runs count: tokens, or images of a classifier. Several runs may count different things.
import { short } from './format';
import type { Maybe } from './types';

interface Counting {
  unit: string;
}

function singleUnit(runs: Counting[]): string | null {
  const units = new Set(runs.map((run) => run.unit));
  return units.size > 1 ? null : [...units][0] ?? 'tokens';
}

// "tokens", "images", or both words where the runs differ.
export function unitsOf(runs: Counting[]): string {
  return singleUnit(runs) ?? 'tokens or images';
}

export function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

// The title of a column of speeds.
export function speedTitle(runs: Counting[]): string {
  const unit = singleUnit(runs);
  return unit === null ? 'Speed' : `${capital(unit)}/s`;
}

// A speed under that title: with its unit where the title cannot say it.
export function speed(value: Maybe | undefined, run: Counting, among: Counting[]): string {
  const text = short(value);
  return singleUnit(among) === null && value !== null && value !== undefined ? `${text} ${run.unit}/s` : text;
}

// A run that classifies has accuracies beside its losses.
export function hasAccuracy(runs: { validation_accuracy: Maybe }[]): boolean {
  return runs.some((run) => run.validation_accuracy !== null);
}
