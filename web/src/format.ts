// Numbers, times and names as people read them.
import type { Maybe } from './types';

export const NONE = '–';

function isNumber(value: Maybe | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

const superscripts = '⁰¹²³⁴⁵⁶⁷⁸⁹';

function power(exponent: number): string {
  const digits = String(Math.abs(exponent)).replace(/\d/g, (digit) => superscripts[Number(digit)] ?? digit);
  return `10${exponent < 0 ? '⁻' : ''}${digits}`;
}

// Significant digits without trailing zeros: 0.00123, 12.4, 1.2×10⁻⁷.
export function number(value: Maybe | undefined, digits = 4): string {
  if (!isNumber(value)) return NONE;
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) {
    const [mantissa = '', exponent = '0'] = value.toExponential(Math.max(0, digits - 2)).split('e');
    const short = mantissa.includes('.') ? mantissa.replace(/\.?0+$/, '') : mantissa;
    if (short === '1') return power(Number(exponent));
    if (short === '-1') return `−${power(Number(exponent))}`;
    return `${minus(short)}×${power(Number(exponent))}`;
  }
  const text = size >= 10 ** digits ? value.toFixed(0) : value.toPrecision(digits);
  return minus(text.includes('.') ? text.replace(/\.?0+$/, '') : text);
}

function minus(text: string): string {
  return text.replace('-', '−');
}

// A fixed number of decimals, so that columns line up.
export function fixed(value: Maybe | undefined, decimals: number): string {
  return isNumber(value) ? minus(value.toFixed(decimals)) : NONE;
}

export function signed(value: Maybe | undefined, decimals: number): string {
  if (!isNumber(value)) return NONE;
  const text = fixed(Math.abs(value), decimals);
  if (Number(text) === 0) return `±${text}`;
  return `${value < 0 ? '−' : '+'}${text}`;
}

export function loss(value: Maybe | undefined): string {
  return isNumber(value) && Math.abs(value) >= 1e4 ? number(value) : fixed(value, 4);
}

// Steps and other counts in full: 12,000. A narrow no-break space would not be read as a group by everyone.
export function count(value: Maybe | undefined): string {
  if (!isNumber(value)) return NONE;
  return minus(Math.round(value).toString()).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

const scales: [number, string][] = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

// 12.3k, 4.56M: three significant digits.
export function short(value: Maybe | undefined): string {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  const rounded = Number(size.toPrecision(3));
  const found = scales.find(([limit]) => rounded >= limit);
  if (found) return minus(trimmed(value / found[0]) + found[1]);
  return size < 1e-3 && size > 0 ? number(value, 3) : minus(trimmed(value));
}

function trimmed(value: number): string {
  const text = Math.abs(value) >= 1000 ? value.toFixed(0) : value.toPrecision(3);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

const byteUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(value: Maybe | undefined): string {
  if (!isNumber(value)) return NONE;
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < byteUnits.length - 1) {
    size /= 1024;
    ++unit;
  }
  return `${unit === 0 ? size.toFixed(0) : trimmed(size)} ${byteUnits[unit] ?? ''}`;
}

// How long something takes: 840 µs, 12.5 ms, 3.2 s, 4 min 10 s, 2 h 5 min, 3 d 4 h.
export function duration(seconds: Maybe | undefined): string {
  if (!isNumber(seconds)) return NONE;
  const size = Math.abs(seconds);
  if (size === 0) return '0 s';
  if (size < 1e-3) return `${trimmed(seconds * 1e6)} µs`;
  if (size < 1) return `${trimmed(seconds * 1e3)} ms`;
  if (size < 59.95) return `${trimmed(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return pair(whole, 60, 'min', 1, 's');
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return pair(minutes, 60, 'h', 1, 'min');
  return pair(Math.round(seconds / 3600), 24, 'd', 1, 'h');
}

function pair(value: number, big: number, bigName: string, small: number, smallName: string): string {
  const rest = Math.floor((value % big) / small);
  return `${Math.floor(value / big)} ${bigName}${rest ? ` ${rest} ${smallName}` : ''}`;
}

// One unit, for axes: 1.5 h, 20 min.
export function durationShort(seconds: Maybe | undefined): string {
  if (!isNumber(seconds)) return NONE;
  const size = Math.abs(seconds);
  if (size >= 172800) return `${trimmed(seconds / 86400)} d`;
  if (size >= 3600) return `${trimmed(seconds / 3600)} h`;
  if (size >= 120) return `${trimmed(seconds / 60)} min`;
  return duration(seconds);
}

// A share in 0…1 as a percentage.
export function share(value: Maybe | undefined, decimals = 1): string {
  return isNumber(value) ? `${fixed(100 * value, decimals)} %` : NONE;
}

export function percent(value: Maybe | undefined): string {
  return isNumber(value) ? `${number(value, 3)} %` : NONE;
}

export function withUnit(value: Maybe | undefined, unit: string): string {
  const text = number(value);
  return text === NONE || unit === '' ? text : `${text} ${unit}`;
}

// "3 min ago"; from a week on the date.
export function ago(time: number, now: number): string {
  const seconds = now - time;
  if (!Number.isFinite(seconds)) return NONE;
  if (seconds < 5) return 'just now';
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 7 * 86400) return `${Math.floor(seconds / 86400)} d ago`;
  return date(time).slice(0, 10);
}

// Local time as 2026-03-04 05:06:07.
export function date(time: number): string {
  if (!Number.isFinite(time)) return NONE;
  const at = new Date(time * 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Keeps both ends of a long name: "blocks.10…mlp.down".
export function middle(text: string, length: number): string {
  if (text.length <= length) return text;
  const tail = Math.ceil((length - 1) / 2);
  return `${text.slice(0, length - 1 - tail)}…${text.slice(text.length - tail)}`;
}

// A layer's name in little room: the word that all begin with goes first, then the middle.
export function layerName(name: string, length: number): string {
  return middle(name.length > length ? name.replace(/^[a-z]+\.(?=\d)/, '') : name, length);
}

// "underflow_percent" → "underflow percent".
const spelled: Record<string, string> = { sqnr: 'SQNR', snr: 'SNR', db: 'dB', rms: 'RMS', log2: 'log₂' };

export function words(name: string): string {
  return name.split(/[_.]/).map((word) => spelled[word] ?? word).join(' ');
}

// A setting or an environment value, of whatever shape, on one line.
export function plain(value: unknown): string {
  if (value === null || value === undefined) return NONE;
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return JSON.stringify(value);
}
