// What the rules noticed: how bad, what it means, what to try, and the way to the place.
import { api } from '../api';
import { count, number } from '../format';
import { useResource } from '../hooks';
import { SeverityBadge } from '../parts/badges';
import { Segments, Toolbar } from '../parts/controls';
import { Empty, ErrorBox, Loading, withCode } from '../parts/feedback';
import { changed, go, href, type Place } from '../router';
import type { Alert, RunDetail, Severity } from '../types';

const severities: Severity[] = ['critical', 'warning', 'info'];

export function AlertsView({ place }: { place: Place }) {
  const { data, error, reload } = useResource('alerts', (signal) => api.alerts(undefined, signal), { anyRun: true, kinds: ['alerts'] });
  return (
    <div class="page">
      <div class="page-head"><h1>Alerts of all runs</h1></div>
      {error && <ErrorBox error={error} retry={reload} />}
      {data ? <List alerts={data} place={place} withRun /> : !error && <Loading what="alerts" />}
    </div>
  );
}

export function AlertsOfRun({ run, place }: { run: RunDetail; place: Place }) {
  const { data, error, reload } = useResource(`alerts ${run.id}`, (signal) => api.alerts(run.id, signal), { run: run.id, kinds: ['alerts'] });
  return (
    <div class="page">
      {error && <ErrorBox error={error} retry={reload} />}
      {data ? <List alerts={data} place={place} /> : !error && <Loading what="alerts" />}
    </div>
  );
}

function List({ alerts, place, withRun = false }: { alerts: Alert[]; place: Place; withRun?: boolean }) {
  const severity = place.query.get('severity') ?? 'all';
  const rule = place.query.get('rule');
  if (alerts.length === 0) {
    return (
      <Empty title="No alerts">
        <p>The rules watch underflow, saturation, scales, loss, gradients and weights while a run trains; nothing has tripped one.</p>
      </Empty>
    );
  }
  const shown = alerts.filter((one) => (severity === 'all' || one.severity === severity) && (!rule || one.rule === rule));
  const of = (kind: Severity) => alerts.filter((one) => one.severity === kind).length;
  return (
    <>
      <Toolbar label="Which alerts are shown">
        <Segments label="Severity" value={severity} change={(value) => go(changed(place, { severity: value === 'all' ? null : value }), 'replace')}
          options={[{ value: 'all', text: `all ${count(alerts.length)}` },
            ...severities.map((kind) => ({ value: kind, text: `${kind} ${count(of(kind))}`, disabled: of(kind) === 0 }))]} />
        {rule && <button type="button" class="small" onClick={() => go(changed(place, { rule: null }), 'replace')}>Rule: {rule} ✕</button>}
      </Toolbar>
      <ul class="alerts">
        {shown.slice(0, 500).map((alert, i) => <Item key={`${alert.run} ${alert.rule} ${alert.site ?? ''} ${alert.step} ${i}`} alert={alert} place={place} withRun={withRun} />)}
      </ul>
      {shown.length > 500 && <p class="quiet">The newest 500 of {count(shown.length)} are shown.</p>}
    </>
  );
}

function Item({ alert, place, withRun }: { alert: Alert; place: Place; withRun: boolean }) {
  const role = alert.site?.split('/').pop();
  return (
    <li class={`alert alert-${alert.severity}`}>
      <div class="alert-side">
        <SeverityBadge severity={alert.severity} />
        <span class="quiet tabular">
          {alert.last_step > alert.step ? `steps ${count(alert.step)}–${count(alert.last_step)}` : `step ${count(alert.step)}`}
        </span>
        {alert.count > 1 && <span class="quiet tabular">{count(alert.count)} times</span>}
      </div>
      <div class="alert-body">
        <p class="alert-text"><b>{alert.text}</b></p>
        <p>{withCode(alert.meaning)}</p>
        <p class="remedy"><b>Try:</b> {withCode(alert.remedy)}</p>
        {alert.act && <p class="quiet">What the guard did: {alert.act}.</p>}
        <p class="quiet alert-links">
          {withRun && <a href={href(['run', alert.run, 'overview'])}>{alert.run_name}</a>}
          {alert.site && <a href={href(['run', alert.run, 'numerics'], { site: alert.site, role, step: alert.step })}>{alert.site}</a>}
          <a href={changed(place, { rule: alert.rule })}>rule <code>{alert.rule}</code></a>
          {alert.value !== null && <span>value {number(alert.value)}{alert.threshold !== null ? `, threshold ${number(alert.threshold)}` : ''}</span>}
        </p>
      </div>
    </li>
  );
}
