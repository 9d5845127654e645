// The precision map's rows: layers by roles, with what changed and what localization found.
import type { Alert, Change, Localization, LocalizedSite, Site } from '../types';

export interface PrecisionCell {
  site: Site;
  changes: Change[]; // of format, newest first
  planned: string | null; // the format of the plan, where it is no longer the one in use
  localized: LocalizedSite | undefined;
  alerts: Alert[]; // the most severe first
}

export interface PrecisionRow {
  layer: string;
  cells: Map<string, PrecisionCell>; // by role
}

export function precisionRows(sites: Site[], changes: Change[], localization: Localization | null,
  alerts: Alert[] = []): PrecisionRow[] {
  const alertsOf = (site: string) => alerts.filter((one) => one.site === site)
    .sort((a, b) => Number(b.severity === 'critical') - Number(a.severity === 'critical'));
  const changesOf = new Map<string, Change[]>();
  for (const change of changes) {
    if (change.format_before === change.format_after) continue;
    changesOf.set(change.site, [...(changesOf.get(change.site) ?? []), change]);
  }
  const localizedOf = new Map((localization?.sites ?? []).map((one) => [one.site, one]));
  const rows = new Map<string, PrecisionRow>();
  for (const site of sites) {
    const row = rows.get(site.layer) ?? { layer: site.layer, cells: new Map<string, PrecisionCell>() };
    rows.set(site.layer, row);
    const own = [...(changesOf.get(site.site) ?? [])].sort((a, b) => b.step - a.step);
    const first = own[own.length - 1]?.format_before ?? null;
    row.cells.set(site.role, {
      site, changes: own, planned: own.length > 0 && first !== own[0]?.format_after ? first : null, localized: localizedOf.get(site.site),
      alerts: alertsOf(site.site),
    });
  }
  return [...rows.values()];
}

// Rows that are equal but for the layer's number are one group of the summary: "e4m3 · tensor · delayed" → 120 sites.
export function storageSummary(sites: Site[]): { name: string; count: number; format: string }[] {
  const groups = new Map<string, { name: string; count: number; format: string }>();
  for (const site of sites) {
    const name = storageText(site);
    const group = groups.get(name) ?? { name, count: 0, format: site.rows };
    ++group.count;
    groups.set(name, group);
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

export function storageText(site: Site): string {
  const format = site.rows === site.columns ? site.rows : `${site.rows}/${site.columns}`;
  return [format, site.block, site.policy].filter((part) => part && part !== 'none').join(' · ');
}
