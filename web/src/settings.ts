// What a run was trained with, by ranges of steps: a resume may change a setting.
import { count } from './format';
import type { SettingChange } from './types';

export interface SettingRange {
  value: string;
  from: number; // first step of the range
  to: number | null; // last one; null: up to now
}

// Values are TOML: text is quoted.
const unquoted = (value: string): string => (/^".*"$/.test(value) ? value.slice(1, -1) : value);

export function rangesOf(changes: SettingChange[], key: string, now: string): SettingRange[] {
  const ranges: SettingRange[] = [];
  let from = 1;
  for (const change of changes) {
    if (change.key !== key) continue;
    // Two changes at one step: what lay between them trained nothing.
    if (change.step >= from) ranges.push({ value: unquoted(change.before), from, to: change.step });
    from = change.step + 1;
  }
  ranges.push({ value: now, from, to: null });
  return ranges;
}

// "bf16 to step 1,000, then fp8-delayed"; the value alone where it never changed.
export function rangesInWords(ranges: SettingRange[]): string {
  return ranges.map((range) => (range.to === null ? range.value : `${range.value} to step ${count(range.to)}`)).join(', then ');
}
