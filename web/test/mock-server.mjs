// The dashboard's server as far as the page can tell: serves web/dist and made-up runs, one of which grows.
// node test/mock-server.mjs [port]
import http from 'node:http';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as data from './mock-data.mjs';

const dist = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', 'dist');
const types = { 'index.html': 'text/html; charset=utf-8', 'app.js': 'text/javascript; charset=utf-8', 'app.css': 'text/css; charset=utf-8' };
const headers = {
  'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
};

function finiteOnly(key, value) {
  return typeof value === 'number' && !Number.isFinite(value) ? null : value;
}

function applyEdit(run, { name, tags, note, hidden, deleted }) {
  run.trained_name ??= run.name;
  if (name !== undefined) run.name = name || run.trained_name;
  if (tags !== undefined) run.tags = tags;
  if (note !== undefined) run.note = note;
  if (hidden !== undefined) run.hidden = hidden;
  if (deleted !== undefined) run.deleted = deleted ? Date.now() / 1000 : null;
}

export async function startMock({ port = 0, growEvery = 400, runs = data.makeRuns() } = {}) {
  // Tests may change them; wholeAfter: milliseconds until an answer of more than 160 columns or points comes.
  const state = { changeToken: 'first token', problems: [], wholeAfter: 0 };
  const streams = new Set();
  const requests = [];
  const json = (response, body, status = 200) => {
    response.writeHead(status, { ...headers, 'Content-Type': 'application/json' });
    response.end(JSON.stringify(body, finiteOnly));
  };
  const missing = (response) => json(response, { error: 'there is no such thing', remedy: 'look at the list of runs' }, 404);

  const handlers = {
    '': (run, q, response) => json(response, data.detailOf(run)),
    metrics: (run, q, response) => json(response, {
      series: data.metrics(run, (q.get('names') ?? '').split(','), Number(q.get('after') ?? 0), Number(q.get('points') ?? 2000)),
    }),
    numerics: (run, q, response) => {
      const body = data.matrix(run, {
        statistic: q.get('statistic'), role: q.get('role'), from: Number(q.get('from') ?? 1), to: Number(q.get('to') ?? 1e9),
        columns: Number(q.get('columns') ?? 1200), rows: Number(q.get('rows') ?? 800),
      });
      response.writeHead(200, { ...headers, 'Content-Type': 'application/octet-stream' });
      response.end(body);
    },
    history: (run, q, response) => json(response, data.history(run, q.get('site'), Number(q.get('points') ?? 2000))),
    histogram: (run, q, response) => json(response, data.histogram(run, q.get('site'), q.has('step') ? Number(q.get('step')) : undefined)),
    changes: (run, q, response) => json(response, { changes: data.changesOf(run) }),
    alerts: (run, q, response) => json(response, { alerts: data.alertsOf(run) }),
    events: (run, q, response) => json(response, {
      events: run.step === 0 ? [] : [
        { step: 0, kind: 'plan', text: '93 % of the products in 8 bits and fewer' },
        { step: Math.ceil(run.step * 0.6), kind: 'widened', text: 'blocks.1.mlp.down/x: overflowed in 5 steps in a row, stored in bf16 from here on' },
        ...(run.hostile ? [{ step: 10, kind: '<i>notice</i>', text: '<iframe src="javascript:boom()">' }] : []),
        { step: Math.ceil(run.step * 0.3), kind: 'notice', text: 'the tokens of one shard were used up: a second epoch begins' },
      ],
    }),
    samples: (run, q, response) => json(response, {
      samples: run.step === 0 ? [] : [0.25, 0.5, 1].map((part) => ({
        step: Math.ceil(run.step * part),
        text: run.hostile ? '<script>boom()</script>\n&lt;not an entity&gt;' : 'The instrument that measured the smallest of the values had been\nset aside in the night, and the row of figures it left behind was\nread aloud until nobody could say where the noise began.',
      })),
    }),
  };

  // As strict as the real one about the token and the type, so that the page has to send both.
  const changeRun = (request, response, run, how) => {
    if (request.method !== 'POST') return json(response, { error: 'not for that method', remedy: 'use POST' }, 405);
    if (request.headers['content-type'] !== 'application/json') return json(response, { error: 'not JSON', remedy: 'send JSON' }, 415);
    if (!state.changeToken || request.headers['x-quaver-token'] !== state.changeToken) {
      return json(response, { error: 'the request does not bring the token for changes', remedy: 'reload the page' }, 403);
    }
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    return request.on('end', () => {
      if (how === 'removal' && (run.deleted == null || run.status === 'running')) return json(response, { error: 'not deleted', remedy: 'delete it first' }, 409);
      if (how === 'removal') runs.splice(runs.indexOf(run), 1);
      else applyEdit(run, JSON.parse(body));
      response.writeHead(204, headers);
      response.end();
      return how === 'removal' ? tell('runs', {}) : tell('change', { run: run.id, kinds: ['status'], step: run.step });
    });
  };

  const serveRun = async (request, response, url, parts) => {
    const run = runs.find((one) => one.id === parts[2]);
    if (!run) return missing(response);
    if (parts[3] === 'documents') {
      const makers = { localization: data.localizationOf, ranks: data.ranksOf };
      const document = makers[parts[4]]?.(run);
      return document ? json(response, document) : missing(response);
    }
    if (parts[3] === 'edit' || parts[3] === 'removal') return changeRun(request, response, run, parts[3]);
    const handler = handlers[parts[3] ?? ''];
    if (!handler) return missing(response);
    const size = Number(url.searchParams.get('columns') ?? url.searchParams.get('points') ?? 0);
    if (size > 160 && state.wholeAfter > 0) await new Promise((resolve) => setTimeout(resolve, state.wholeAfter));
    return handler(run, url.searchParams, response);
  };

  const server = http.createServer(async (request, response) => {
    const url = new URL(request.url, 'http://mock');
    const parts = url.pathname.split('/').filter(Boolean).map(decodeURIComponent);
    requests.push(url.pathname + url.search);
    if (parts[0] !== 'api') {
      const name = parts[0] ?? 'index.html';
      if (!types[name]) return missing(response);
      response.writeHead(200, { ...headers, 'Content-Type': types[name], 'Cache-Control': 'no-cache' });
      return response.end(await readFile(path.join(dist, name)));
    }
    if (parts[1] === 'runs' && parts.length === 2) return json(response, { runs: runs.map(data.publicOf), problems: state.problems });
    if (parts[1] === 'runs') return serveRun(request, response, url, parts);
    if (parts[1] === 'alerts') return json(response, { alerts: runs.filter((run) => !run.hidden && run.deleted == null).flatMap(data.alertsOf) });
    if (parts[1] === 'server') return json(response, {
      version: '0.9.0', store: 'quaver.db', folder: 'runs', depth: 4, streams: streams.size, token_required: false, change_token: state.changeToken,
    });
    if (parts[1] === 'events') {
      response.writeHead(200, { ...headers, 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
      response.write(': hello\n\n');
      streams.add(response);
      return request.on('close', () => streams.delete(response));
    }
    return missing(response);
  });

  const tell = (event, body) => streams.forEach((stream) => stream.write(`event: ${event}\ndata: ${JSON.stringify(body)}\n\n`));
  const timer = setInterval(() => {
    for (const run of runs.filter((one) => one.live && one.step < one.steps)) {
      run.step += 10;
      run.updated = Date.now() / 1000;
      tell('change', { run: run.id, kinds: ['metrics', 'numerics', 'status'], step: run.step });
    }
  }, growEvery);

  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    port: server.address().port,
    runs,
    state,
    requests,
    addRun(run) {
      runs.unshift(run);
      tell('runs', {});
    },
    tell,
    async close() {
      clearInterval(timer);
      streams.forEach((stream) => stream.destroy());
      server.closeAllConnections?.();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock({ port: Number(process.argv[2] ?? 8900) });
  console.log(mock.url);
}
