// Alerts in groups: the most severe first, and under each its symptoms.
import type { Alert, Severity } from '../types';
import { href } from '../router';

export interface AlertGroup {
  cause: Alert;
  symptoms: Alert[];
}

const gravity: Record<Severity, number> = { critical: 2, warning: 1, info: 0 };

export function groupsOf(alerts: Alert[]): AlertGroup[] {
  const groups = new Map<number, AlertGroup>();
  alerts.forEach((alert, index) => {
    if ((alert.cause ?? index) === index) groups.set(index, { cause: alert, symptoms: [] });
  });
  alerts.forEach((alert, index) => {
    if ((alert.cause ?? index) !== index) groups.get(alert.cause)?.symptoms.push(alert);
  });
  // A group is as severe as its most severe alert; among equals the earliest first.
  const worst = (group: AlertGroup) => Math.max(...[group.cause, ...group.symptoms].map((one) => gravity[one.severity] ?? 0));
  return [...groups.values()].sort((a, b) => worst(b) - worst(a) || a.cause.step - b.cause.step);
}

export function severityOf(group: AlertGroup): Severity {
  const found = [group.cause, ...group.symptoms].map((one) => one.severity);
  return found.includes('critical') ? 'critical' : found.includes('warning') ? 'warning' : 'info';
}

const metricsOfRun = new Set(['loss', 'gradient_norm', 'max_logit', 'loss_scale', 'skipped']);

// To the picture that shows it: a site's statistic at the step, or the run's curves and its sites about then.
export function linkOf(alert: Alert): string {
  if (alert.site?.includes('/')) {
    const role = alert.site.split('/').pop();
    return href(['run', alert.run, 'numerics'], { statistic: alert.seen_in, role, site: alert.site, step: alert.step });
  }
  if (alert.seen_in && !metricsOfRun.has(alert.seen_in)) return href(['run', alert.run, 'numerics'], { statistic: alert.seen_in });
  return href(['run', alert.run, 'overview']);
}
