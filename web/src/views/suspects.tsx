// What the alerts say of a run's sites, in the picture that is looked at: a line for each of the gravest, a mark for each
// row and role.
import { count } from '../format';
import { SeverityBadge } from '../parts/badges';
import { href } from '../router';
import type { Alert, RunDetail, Severity } from '../types';
import { groupsOf, linkOf, severityOf, type AlertGroup } from './alert_groups';

const shown = 2;

function withSites(alerts: Alert[]): AlertGroup[] {
  return groupsOf(alerts).filter((group) => group.cause.site?.includes('/'));
}

// The statistic that shows the gravest of them: the noise against what the format can give wherever that is among its
// signs, since it has every site's; else the one that the alert is about.
export function statisticOf(alerts: Alert[]): string | null {
  const [gravest] = withSites(alerts);
  if (!gravest) return null;
  const signs = [gravest.cause, ...gravest.symptoms].filter((one) => one.site === gravest.cause.site);
  return signs.some((one) => one.seen_in === 'sqnr_deficit_db') ? 'sqnr_deficit_db' : gravest.cause.seen_in;
}

export function siteOf(alerts: Alert[]): string | null {
  return withSites(alerts)[0]?.cause.site ?? null;
}

// The severity of what stands against each site, symptoms among it.
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
    <ul class="suspects" aria-label="What the alerts point at">
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
