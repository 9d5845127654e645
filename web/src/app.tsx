// The frame around every view: name, places, the state of the connection, light or dark.
import { useEffect, useRef } from 'preact/hooks';
import { ConnectionBanner, ConnectionState } from './parts/connection';
import { Empty } from './parts/feedback';
import { useServer } from './hooks';
import { href, usePlace, type Place } from './router';
import { setTheme, useTheme, type ThemeChoice } from './theme';
import { AlertsView } from './views/alerts';
import { CompareView } from './views/compare';
import { DifferenceView } from './views/difference';
import { UndoBar } from './views/run_actions';
import { RunFrame } from './views/run_frame';
import { RunsView } from './views/runs';

export function App() {
  const place = usePlace();
  const main = useRef<HTMLElement>(null);
  const where = place.path.join('/');
  const first = useRef(true);

  // A new place: readers of the keyboard and of the screen start at its beginning.
  useEffect(() => {
    document.title = titleOf(place);
    if (first.current) first.current = false;
    else {
      window.scrollTo(0, 0);
      main.current?.focus({ preventScroll: true });
    }
  }, [where]);

  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        main.current?.focus();
      }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href="#/"><Mark />quaver</a>
        <nav aria-label="Main">
          <TopLink to={[]} place={place} text="Runs" also={['run', 'diff']} />
          <TopLink to={['compare']} place={place} text="Compare" />
          <TopLink to={['alerts']} place={place} text="Alerts" />
        </nav>
        <span class="grow" />
        <ConnectionState />
        <ThemeSwitch />
      </header>
      <ConnectionBanner />
      <main id="main" ref={main} tabIndex={-1}>
        <View place={place} />
      </main>
      <Footer />
      <UndoBar />
    </>
  );
}

function View({ place }: { place: Place }) {
  const [kind, id, tab] = place.path;
  if (kind === undefined) return <RunsView place={place} />;
  if (kind === 'compare') return <CompareView place={place} />;
  if (kind === 'diff') return <DifferenceView place={place} />;
  if (kind === 'alerts') return <AlertsView place={place} />;
  if (kind === 'run' && id) return <RunFrame key={id} id={id} tab={tab ?? 'overview'} place={place} />;
  return <Empty title="There is no such page"><p><a href="#/">Go to all runs</a></p></Empty>;
}

function titleOf(place: Place): string {
  const [kind, , tab] = place.path;
  const names: Record<string, string> = { compare: 'Compare', diff: 'Difference', alerts: 'Alerts' };
  if (kind === 'run') return `${tab ?? 'overview'} · quaver`;
  return `${names[kind ?? ''] ?? 'Runs'} · quaver`;
}

function TopLink({ to, place, text, also = [] }: { to: string[]; place: Place; text: string; also?: string[] }) {
  const here = place.path[0] ?? '';
  const current = here === (to[0] ?? '') || also.includes(here);
  return <a href={href(to)} {...(current ? { 'aria-current': 'page' as const } : {})}>{text}</a>;
}

function Mark() {
  return (
    <svg width="16" height="18" viewBox="0 0 16 18" aria-hidden="true">
      <ellipse cx="5" cy="14" rx="4" ry="3" transform="rotate(-20 5 14)" fill="currentColor" />
      <path d="M7.4 1h1.7c.3 3 5 3.7 4.6 8.5-.7-2-2.7-3.2-4.6-3.5v8H7.4z" fill="currentColor" />
    </svg>
  );
}

const themeNames: Record<ThemeChoice, string> = { auto: 'Auto', light: 'Light', dark: 'Dark' };
const nextTheme: Record<ThemeChoice, ThemeChoice> = { auto: 'light', light: 'dark', dark: 'auto' };

function ThemeSwitch() {
  const { choice } = useTheme();
  return (
    <button type="button" class="ghost" onClick={() => setTheme(nextTheme[choice])}
      aria-label={`Colors: ${themeNames[choice]}. Change to ${themeNames[nextTheme[choice]]}`}
      title="Light, dark, or as the system says">
      <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
        <circle cx="7" cy="7" r="5.5" fill="none" stroke="currentColor" stroke-width="1.5" />
        <path d="M7 1.5a5.5 5.5 0 010 11z" fill="currentColor" />
      </svg>
      <span class="wide-only">{themeNames[choice]}</span>
    </button>
  );
}

function Footer() {
  const data = useServer();
  if (!data) return null;
  return <footer class="quiet">quaver {data.version} · {data.depth > 0 ? data.folder : data.store}{data.change_token ? '' : ' · read only'}</footer>;
}
