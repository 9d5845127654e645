// Light or dark: as the system says unless the reader chose. Charts are drawn on canvas and read their colors here.
import { useLayoutEffect, useState } from 'preact/hooks';
import { recall, remember } from './memory';

export type ThemeChoice = 'auto' | 'light' | 'dark';

const key = 'quaver.theme';
const watchers = new Set<() => void>();
// Asked for when it is needed: what draws is also imported where there is no window.
const systemDark = () => window.matchMedia('(prefers-color-scheme: dark)');
let version = 0;

function stored(): ThemeChoice {
  const value = recall(key);
  return value === 'light' || value === 'dark' ? value : 'auto';
}

let choice = stored();

function apply(): void {
  const root = document.documentElement;
  if (choice === 'auto') root.removeAttribute('data-theme');
  else root.setAttribute('data-theme', choice);
  ++version;
  watchers.forEach((watcher) => watcher());
}

export function startTheme(): void {
  apply();
  systemDark().addEventListener('change', apply);
}

export function setTheme(next: ThemeChoice): void {
  choice = next;
  remember(key, next);
  apply();
}

export function isDark(): boolean {
  return choice === 'auto' ? systemDark().matches : choice === 'dark';
}

// Changes whenever colors do: charts put it among their dependencies.
export function useTheme(): { choice: ThemeChoice; dark: boolean; version: number } {
  const [, redraw] = useState(0);
  useLayoutEffect(() => {
    const watcher = () => redraw((count) => count + 1);
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return { choice, dark: isDark(), version };
}

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || '#888';
}

// Okabe and Ito's palette, by index; after seven the dashes differ.
export const categoryCount = 7;

export function categoryName(index: number): string {
  return `c${index % categoryCount}`;
}

export function dashOf(index: number): number[] {
  return [[], [7, 3], [2, 2], [8, 3, 2, 3]][Math.floor(index / categoryCount) % 4] ?? [];
}

export const reducedMotion = (): boolean => window.matchMedia('(prefers-reduced-motion: reduce)').matches;
