// Which tensor of which layer is stored how, what was changed from the plan and why; beside it what localization measured.
import { useMemo, useState } from 'preact/hooks';
import { api } from '../api';
import { useResource } from '../hooks';
import { Check, Toolbar } from '../parts/controls';
import { Empty, ErrorBox } from '../parts/feedback';
import { formatColor } from '../parts/badges';
import { Term } from '../parts/terms';
import { count, number, share, signed } from '../format';
import { changed, go, href, type Place } from '../router';
import type { Localization, RunDetail } from '../types';
import { linkOf } from './alert_groups';
import { PrecisionGrid } from './precision_grid';
import { precisionRows, storageSummary, storageText, type PrecisionCell } from './precision_rows';

export function PrecisionView({ run, place }: { run: RunDetail; place: Place }) {
  const changes = useResource(`changes ${run.id}`, (signal) => api.changes(run.id, signal), { run: run.id, kinds: ['changes'] });
  const localization = useResource(`localization ${run.id}`, (signal) => api.localization(run.id, signal), { run: run.id, kinds: ['documents'] });
  const alerts = useResource(`alerts ${run.id}`, (signal) => api.alerts(run.id, signal), { run: run.id, kinds: ['alerts'] });
  const [pointed, setPointed] = useState<PrecisionCell | null>(null);
  const filter = place.query.get('filter') ?? '';
  const onlyChanged = place.query.get('changed') === '1';
  const document = localization.data ?? null;
  const rows = useMemo(() => precisionRows(run.sites, changes.data ?? [], document, alerts.data ?? []), [run.sites, changes.data, document, alerts.data]);
  const shown = rows.filter((row) => row.layer.includes(filter)
    && (!onlyChanged || [...row.cells.values()].some((cell) => cell.planned !== null)));
  const moved = rows.reduce((sum, row) => sum + [...row.cells.values()].filter((cell) => cell.planned !== null).length, 0);
  const alerted = rows.some((row) => [...row.cells.values()].some((cell) => cell.alerts.length > 0));
  if (run.sites.length === 0) {
    return <div class="page"><Empty title="This run has no plan yet"><p>It appears when the model has been built.</p></Empty></div>;
  }
  return (
    <div class="page">
      {changes.error && <ErrorBox error={changes.error} />}
      {localization.error && <ErrorBox error={localization.error} />}
      <Toolbar label="Which layers are shown">
        <input type="search" class="filter" placeholder="Filter layers, e.g. mlp.down" aria-label="Filter layers" value={filter}
          onInput={(event) => go(changed(place, { filter: event.currentTarget.value }), 'replace')} />
        <Check label={`Only changed from the plan (${count(moved)})`} checked={onlyChanged}
          change={(on) => go(changed(place, { changed: on ? 1 : null }), 'replace')} />
        <span class="quiet tabular">{count(shown.length)} of {count(rows.length)} layers</span>
      </Toolbar>
      <div class="precision">
        <div class="precision-map">
          {shown.length === 0 ? <p class="quiet">No layer matches.</p>
            : <PrecisionGrid run={run.id} rows={shown} roles={run.roles} localized={document !== null} point={setPointed} />}
        </div>
        <aside class="precision-side">
          <section class="card" aria-live="polite">{pointed ? <Detail cell={pointed} run={run.id} /> : <Hint />}</section>
          <section class="card">
            <div class="card-head"><h3>Stored as</h3></div>
            <table class="share-table"><tbody>
              {storageSummary(run.sites).map((group) => (
                <tr key={group.name}>
                  <th scope="row"><i class={`dot fill-${formatColor(group.format)}`} aria-hidden="true" />{group.name}</th>
                  <td class="num">{count(group.count)}</td>
                </tr>
              ))}
            </tbody></table>
            {alerted && (
              <p class="note"><span class="severity-critical">●</span> critical alert, <span class="severity-warning">●</span> warning: point at the cell to read it</p>
            )}
            {moved > 0 && <p class="note"><span class="moved-mark">▲</span> changed from the plan while training</p>}
          </section>
          <Localized document={document} />
        </aside>
      </div>
    </div>
  );
}

function Hint() {
  return (
    <>
      <div class="card-head"><h3><Term name="site">Site</Term></h3></div>
      <p class="quiet">Point at a cell, or move there with Tab and the arrow keys: its reason appears here. Enter opens its numerics.</p>
    </>
  );
}

function Detail({ cell, run }: { cell: PrecisionCell; run: string }) {
  const { site, localized } = cell;
  return (
    <>
      <div class="card-head"><h3>{site.site}</h3></div>
      <dl class="facts">
        <dt>Stored as</dt><dd>{storageText(site)}</dd>
        <dt>Recipe</dt><dd><code>{site.recipe}</code></dd>
        <dt>Why</dt><dd>{site.reason || 'recipe'}</dd>
        {cell.alerts.map((alert, i) => (
          <>
            <dt key={`at${i}`}>Alert</dt>
            <dd key={`ad${i}`}><a href={linkOf(alert)}>{alert.text}</a></dd>
          </>
        ))}
        {cell.changes.map((change, i) => (
          <>
            <dt key={`t${i}`}>Step {count(change.step)}</dt>
            <dd key={`d${i}`}><b>{change.format_before} → {change.format_after}</b>: {change.reason}</dd>
          </>
        ))}
        {localized && (
          <>
            <dt>Loss change</dt><dd>{signed(localized.loss_change, 5)} {localized.kept_wide && <b>kept in high precision</b>}</dd>
            <dt>Gradient cosine</dt><dd>{number(localized.gradient_cosine)}</dd>
            <dt><Term name="SQNR" /></dt><dd>{number(localized.sqnr_db, 3)} dB</dd>
            <dt>FLOPs</dt><dd>{share(localized.flops_share, 2)}</dd>
          </>
        )}
      </dl>
      <p><a href={href(['run', run, 'numerics'], { site: site.site, role: site.role })}>Open its numerics</a></p>
    </>
  );
}

function Localized({ document }: { document: Localization | null }) {
  return (
    <section class="card">
      <div class="card-head"><h3>Sensitivity (localize)</h3></div>
      {document ? (
        <p class="quiet">
          At step {count(document.step)}, for <code>{document.recipe}</code>: the change of the loss when one {document.group} alone is
          cast, against {number(document.baseline_loss)} with none. ◆ kept in high precision.
        </p>
      ) : (
        <p class="quiet">Not made for this run. <code>quaver localize</code> measures which sites tolerate low precision; its map appears beside this one.</p>
      )}
    </section>
  );
}
