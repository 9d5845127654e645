// The alerts on a run's sites, shown with the heat map: one line for each of the most severe, a mark for each row and
// role.
import { count } from '../format';
import { SeverityBadge } from '../parts/badges';
import { href } from '../router';
import type { Alert, RunDetail, Severity } from '../types';
import { groupsOf, linkOf, severityOf, type AlertGroup } from './alert_groups';

const shown = 2;

function withSites(alerts: Alert[]): AlertGroup[] {
  return groupsOf(alerts).filter((group) => group.cause.site?.includes('/'));
}

// The statistic that shows the most severe of them: the SQNR deficit wherever that is among its symptoms, since every site
// has one; else the one that the alert is about.
export function statisticOf(alerts: Alert[]): string | null {
  const [worst] = withSites(alerts);
  if (!worst) return null;
  const symptoms = [worst.cause, ...worst.symptoms].filter((one) => one.site === worst.cause.site);
  return symptoms.some((one) => one.seen_in === 'sqnr_deficit_db') ? 'sqnr_deficit_db' : worst.cause.seen_in;
}

export function siteOf(alerts: Alert[]): string | null {
  return withSites(alerts)[0]?.cause.site ?? null;
}

// The severity of each site's alerts, with symptoms.
export function severityOfSites(alerts: Alert[]): Map<string, Severity> {
  const found = new Map<string, Severity>();
  const order: Severity[] = ['info', 'warning', 'critical'];
  for (const { site, severity } of alerts) {
    if (site && order.indexOf(severity) > order.indexOf(found.get(site) ?? 'info')) found.set(site, severity);
  }
  return found;
}

export function Suspects({ run, alerts }: { run: RunDetail; alerts: Alert[] }) {
  const groups = withSites(alerts);
  if (groups.length === 0) return null;
  const more = groups.length - shown;
  return (
    <ul class="suspects" aria-label="Most severe alerts">
      {groups.slice(0, shown).map((group) => (
        <li key={`${group.cause.rule} ${group.cause.site ?? ''}`}>
          <SeverityBadge severity={severityOf(group)} /> <a href={linkOf(group.cause)}>{group.cause.text}</a>
          <span class="quiet"> from step {count(group.cause.step)}</span>
        </li>
      ))}
      {more > 0 && <li><a href={href(['run', run.id, 'alerts'])}>{count(more)} more</a></li>}
    </ul>
  );
}
