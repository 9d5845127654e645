// States and severities: always a shape and a word beside the color.
import type { RunStatus, Severity } from '../types';

const statusShapes: Record<RunStatus, string> = {
  running: 'M3 2l7 4-7 4z',
  finished: 'M2 6.5l2.8 2.8L10 3.5l-1-1-4.2 4.7L3 5.5z',
  interrupted: 'M2.5 2h2.5v8H2.5zM7 2h2.5v8H7z',
  failed: 'M3 2l3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 3-3-3-3z',
  lost: 'M5 7.5h2v2H5zM3.5 4.5a2.5 2.5 0 115 0c0 1.3-1.5 1.5-1.5 2.5H5c0-1.6 1.5-1.7 1.5-2.5a.6.6 0 00-1.2 0z',
};

const statusHints: Record<RunStatus, string> = {
  running: 'training now',
  finished: 'reached its last step',
  interrupted: 'stopped before its last step; continue with --resume',
  failed: 'ended with an error',
  lost: 'said it was running, but it has not written for a minute',
};

export function StatusBadge({ status }: { status: RunStatus }) {
  const known: RunStatus = status in statusShapes ? status : 'lost';
  return (
    <span class={`badge status-${known}`} title={statusHints[known]}>
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"><path d={statusShapes[known]} fill="currentColor" /></svg>
      {status}
    </span>
  );
}

const severityShapes: Record<Severity, string> = {
  info: 'M6 1a5 5 0 110 10A5 5 0 016 1zm-.8 4.3v3.7h1.6V5.3zm0-2.3v1.5h1.6V3z',
  warning: 'M6 1l5.5 10H.5zm-.7 3.8v3h1.4v-3zm0 3.7v1.3h1.4V8.5z',
  critical: 'M3.9 1h4.2L11 3.9v4.2L8.1 11H3.9L1 8.1V3.9zm1.3 2v4h1.6V3zm0 4.8v1.5h1.6V7.8z',
};

export function SeverityBadge({ severity }: { severity: Severity }) {
  const known: Severity = severity in severityShapes ? severity : 'info';
  return (
    <span class={`badge severity-${known}`}>
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"><path fill-rule="evenodd" d={severityShapes[known]} fill="currentColor" /></svg>
      {severity}
    </span>
  );
}

// Formats have the same color everywhere.
const formatColors: Record<string, string> = {
  e4m3: 'c0', e5m2: 'c4', e2m1: 'c2', bf16: 'c6', f16: 'c3', f32: 'c1', tf32: 'c5',
};

const highPrecision = new Set(['f32', 'tf32', 'bf16', 'f16']);

export function isLowPrecision(format: string): boolean {
  return !highPrecision.has(format);
}

export function formatColor(format: string): string {
  return formatColors[format.toLowerCase()] ?? 'c3';
}
