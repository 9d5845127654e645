// What the rules noticed: how bad, what it means, what to try, and the way to the place.
import { api } from '../api';
import { count, number, words } from '../format';
import { useResource } from '../hooks';
import { SeverityBadge } from '../parts/badges';
import { Segments, Toolbar } from '../parts/controls';
import { Empty, ErrorBox, Loading, withCode } from '../parts/feedback';
import { changed, go, href, type Place } from '../router';
import type { Alert, RunDetail, Severity } from '../types';
import { groupsOf, linkOf, severityOf, type AlertGroup } from './alert_groups';

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
        <p>The rules check underflow, saturation, scales, loss, gradients and weights while a run trains; none has raised one.</p>
      </Empty>
    );
  }
  const groups = groupsOf(alerts).filter((group) => [group.cause, ...group.symptoms]
    .some((one) => (severity === 'all' || one.severity === severity) && (!rule || one.rule === rule)));
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
        {groups.slice(0, 500).map((group, i) => (
          <Item key={`${group.cause.run} ${group.cause.rule} ${group.cause.site ?? ''} ${group.cause.step} ${i}`} group={group} place={place} withRun={withRun} />
        ))}
      </ul>
      {groups.length > 500 && <p class="quiet">The most severe 500 of {count(groups.length)} are shown.</p>}
    </>
  );
}

function Item({ group, place, withRun }: { group: AlertGroup; place: Place; withRun: boolean }) {
  const { cause: alert, symptoms } = group;
  const severity = severityOf(group);
  return (
    <li class={`alert alert-${severity}`}>
      <div class="alert-side">
        <SeverityBadge severity={severity} />
        <span class="quiet tabular">
          {alert.last_step > alert.step ? `steps ${count(alert.step)}–${count(alert.last_step)}` : `step ${count(alert.step)}`}
        </span>
        {alert.count > 1 && <span class="quiet tabular">{count(alert.count)} times</span>}
      </div>
      <div class="alert-body">
        <p class="alert-text"><a href={linkOf(alert)}><b>{alert.text}</b></a></p>
        <p>{withCode(alert.meaning)}</p>
        <p class="remedy"><b>Try:</b> {withCode(alert.remedy)}</p>
        {alert.act && <p class="quiet">Remedy applied by the guard: {alert.act}.</p>}
        <p class="quiet alert-links">
          {withRun && <a href={href(['run', alert.run, 'overview'])}>{alert.run_name}</a>}
          {alert.site && <a class="alert-site" href={linkOf(alert)}>{alert.site}</a>}
          {!alert.site && <a href={aboutThen(alert)}>sites around that step</a>}
          <a href={changed(place, { rule: alert.rule })}>rule <code>{alert.rule}</code></a>
          {alert.value !== null && <span>value {number(alert.value)}{alert.threshold !== null ? `, threshold ${number(alert.threshold)}` : ''}</span>}
        </p>
        {symptoms.length > 0 && <Symptoms symptoms={symptoms} />}
      </div>
    </li>
  );
}

function Symptoms({ symptoms }: { symptoms: Alert[] }) {
  return (
    <details class="symptoms">
      <summary>{symptoms.length === 1 ? '1 symptom' : `${count(symptoms.length)} symptoms`}: {[...new Set(symptoms.map((one) => words(one.rule)))].join(', ')}</summary>
      <ul>
        {symptoms.map((one, i) => (
          <li key={i}><SeverityBadge severity={one.severity} /> <a href={linkOf(one)}>{one.text}</a> <span class="quiet tabular">step {count(one.step)}</span></li>
        ))}
      </ul>
    </details>
  );
}

const aboutThen = (alert: Alert) => href(['run', alert.run, 'numerics'], { from: Math.max(1, alert.step - 50), to: alert.step + 50 });
