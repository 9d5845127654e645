// Requests to the server. Every failure is an ApiError that says what happened and what to do.
import type {
  Alert, Change, Histogram, History, Localization, Matrix, MatrixHeader, RankInfo, Run, RunDetail, RunEdit, RunEvent, Sample, SeriesByName,
  ServerInfo, StoreProblem,
} from './types';

export class ApiError extends Error {
  constructor(
    readonly status: number, // 0: no answer
    what: string,
    readonly remedy: string,
  ) {
    super(what);
  }
}

function remedyFor(status: number): string {
  if (status === 0) return 'Check that `quaver dash` is still running; the page reconnects by itself.';
  if (status === 401) return 'Open the address that `quaver dash` printed: it carries the token.';
  if (status === 403) return 'Open the page under the address that `quaver dash` printed.';
  if (status === 404) return 'The run may have been deleted, or it has no such record.';
  return 'Reload the page; if it happens again, look at the output of `quaver dash`.';
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: unknown; remedy?: unknown };
    if (typeof body.error === 'string') {
      const remedy = typeof body.remedy === 'string' ? body.remedy : remedyFor(response.status);
      return new ApiError(response.status, body.error, remedy);
    }
  } catch {
    // Not JSON: the status alone must do.
  }
  return new ApiError(response.status, `The server answered ${response.status}`, remedyFor(response.status));
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: 'same-origin', ...init });
  } catch (failure) {
    if (init.signal?.aborted) throw failure;
    throw new ApiError(0, 'The server does not answer', remedyFor(0));
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await request(path, signal ? { signal } : {});
  return (await response.json()) as T;
}

const part = encodeURIComponent;

// Most runs have no document of a kind (they were never localized, they ran on one rank), which is no failure.
async function document<T>(id: string, kind: string, signal?: AbortSignal): Promise<T | null> {
  try {
    return await get<T>(`api/runs/${part(id)}/documents/${kind}`, signal);
  } catch (failure) {
    if (failure instanceof ApiError && failure.status === 404) return null;
    throw failure;
  }
}

function query(values: Record<string, string | number | undefined>): string {
  const parts = Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key}=${part(String(value))}`);
  return parts.length ? `?${parts.join('&')}` : '';
}

let changeToken: string | null | undefined; // unknown until it is needed

// A server that was started anew has another token: it is asked for once more.
async function change(path: string, body: object): Promise<void> {
  const known = changeToken !== undefined;
  changeToken ??= (await api.server()).change_token;
  try {
    await request(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Quaver-Token': changeToken ?? '' },
      body: JSON.stringify(body),
    });
  } catch (failure) {
    const refused = failure instanceof ApiError && failure.status === 403;
    if (refused) changeToken = undefined;
    if (!refused || !known) throw failure;
    await change(path, body);
  }
}

export const api = {
  server: (signal?: AbortSignal) => get<ServerInfo>('api/server', signal),
  runs: (signal?: AbortSignal) => get<{ runs: Run[]; problems: StoreProblem[] }>('api/runs', signal),
  run: (id: string, signal?: AbortSignal) => get<RunDetail>(`api/runs/${part(id)}`, signal),
  metrics: async (id: string, names: string[], after: number, points: number, signal?: AbortSignal) =>
    (await get<{ series: SeriesByName }>(
      `api/runs/${part(id)}/metrics${query({ names: names.join(','), after, points })}`, signal)).series,
  history: (id: string, site: string, points: number, signal?: AbortSignal) =>
    get<History>(`api/runs/${part(id)}/history${query({ site, points })}`, signal),
  histogram: (id: string, site: string, step: number | undefined, signal?: AbortSignal) =>
    get<Histogram>(`api/runs/${part(id)}/histogram${query({ site, step })}`, signal),
  changes: async (id: string, signal?: AbortSignal) =>
    (await get<{ changes: Change[] }>(`api/runs/${part(id)}/changes`, signal)).changes,
  alerts: async (id: string | undefined, signal?: AbortSignal) =>
    (await get<{ alerts: Alert[] }>(id === undefined ? 'api/alerts' : `api/runs/${part(id)}/alerts`, signal)).alerts,
  events: async (id: string, signal?: AbortSignal) =>
    (await get<{ events: RunEvent[] }>(`api/runs/${part(id)}/events`, signal)).events,
  samples: async (id: string, signal?: AbortSignal) =>
    (await get<{ samples: Sample[] }>(`api/runs/${part(id)}/samples`, signal)).samples,

  localization: (id: string, signal?: AbortSignal) => document<Localization>(id, 'localization', signal),
  ranks: async (id: string, signal?: AbortSignal) =>
    (await document<{ ranks: RankInfo[] }>(id, 'ranks', signal))?.ranks ?? [],

  edit: (id: string, edit: RunEdit) => change(`api/runs/${part(id)}/edit`, edit),
  remove: (id: string) => change(`api/runs/${part(id)}/removal`, {}), // for good

  async numerics(id: string, wanted: NumericsQuery, signal?: AbortSignal): Promise<Matrix> {
    const path = `api/runs/${part(id)}/numerics${query({ ...wanted })}`;
    const response = await request(path, signal ? { signal } : {});
    const buffer = await response.arrayBuffer();
    const began = performance.now();
    const matrix = decodeMatrix(buffer);
    performance.measure('numerics decoded', { start: began });
    return matrix;
  },
};

export interface NumericsQuery {
  statistic: string;
  role: string;
  from: number | undefined;
  to: number | undefined;
  columns: number;
  rows: number;
}

// u32 length of a JSON header, the header, then float32 [rows × columns], all little-endian.
export function decodeMatrix(buffer: ArrayBuffer): Matrix {
  const damaged = () => new ApiError(200, 'The server sent numerics that cannot be read', 'Reload the page.');
  if (buffer.byteLength < 4) throw damaged();
  const length = new DataView(buffer).getUint32(0, true);
  const start = 4 + length;
  if (start % 4 !== 0 || start > buffer.byteLength) throw damaged();
  let header: MatrixHeader;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as MatrixHeader;
  } catch {
    throw damaged();
  }
  const rows = header.rows.length;
  const columns = header.steps.length;
  if (start + 4 * rows * columns > buffer.byteLength) throw damaged();
  return { header, rows, columns, values: new Float32Array(buffer, start, rows * columns) };
}
