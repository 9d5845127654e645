// The part of the x axis that a view's charts show, in the address: "zoom=120,480". Charts of one view share it.
import { changed, go, parse, type Place } from '../router';

export type Range = readonly [number, number];

export function zoomOf(place: Place): Range | null {
  const parts = (place.query.get('zoom') ?? '').split(',');
  if (parts.length !== 2 || parts.some((part) => part.trim() === '')) return null;
  const [from, to] = parts.map(Number) as [number, number];
  return Number.isFinite(from) && Number.isFinite(to) && from < to ? [from, to] : null;
}

// Six digits are finer than a pixel.
const brief = (value: number) => String(Number(value.toPrecision(6)));

export function setZoom(range: Range | null): void {
  const place = parse(location.hash);
  const text = range && `${brief(range[0])},${brief(range[1])}`;
  if (range && !zoomOf({ ...place, query: new URLSearchParams({ zoom: text ?? '' }) })) return; // narrower than it can be told
  go(changed(place, { zoom: text }), 'replace');
}
