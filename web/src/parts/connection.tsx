// Whether the page hears the server: a word in the header, and a bar across the page when it does not.
import { useLiveState, useNow } from '../hooks';
import { live } from '../live';

export function ConnectionState() {
  const { state } = useLiveState();
  const text = { connecting: 'connecting', live: 'live', lost: 'connection lost' }[state];
  return (
    <span class={`connection connection-${state}`} role="status">
      <i aria-hidden="true" />{text}
    </span>
  );
}

export function ConnectionBanner() {
  const { state } = useLiveState();
  return state === 'lost' ? <Lost /> : null;
}

function Lost() {
  const { retryAt } = useLiveState();
  const now = useNow(500);
  const wait = Math.max(0, Math.ceil(retryAt / 1000 - now));
  return (
    <div class="banner" role="alert">
      <span><b>Connection lost.</b> What you see is as of then. Is <code>quaver dash</code> still running?</span>
      <span class="quiet tabular" aria-hidden="true">{wait > 0 ? `next attempt in ${wait} s` : 'trying…'}</span>
      <button type="button" class="small" onClick={() => live.retryNow()}>Retry now</button>
    </div>
  );
}
