"use strict";
// Keeps a page up to date: when the server says that something changed, the page is asked for again and its live parts are put in
// place of the old ones. Without this script every page works, and is as old as it says at its foot.
(() => {
  const live = document.getElementById("live");
  const where = document.body.dataset.changes;
  if (!live || !where || !window.EventSource) return;

  const HIDDEN_MS = 30000, REOPEN_MS = 15000;
  let source = null, busy = false, again = false, poll = 0;

  const tell = (state, text) => {
    if (live.textContent === text) return;
    live.dataset.state = state;
    live.textContent = text;
  };

  const short = (seconds) => {
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
    if (minutes < 60) return `${minutes} min`;
    if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
    return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
  };

  // By the server's clock, which the page was made by: this machine's may be off.
  const offset = Date.parse(document.body.dataset.now) - Date.now();
  const ages = () => {
    for (const one of document.querySelectorAll("time[data-age]")) {
      const text = short((Date.now() + offset - Date.parse(one.dateTime)) / 1000);
      if (!one.textContent.startsWith("in ") && one.textContent !== text) one.textContent = text;
    }
  };

  // Somebody types there, or has typed: what they see must not change under their hands.
  const inUse = (part) =>
    [...part.querySelectorAll("textarea, input:not([type=hidden]), select")].some(
      (field) => field === document.activeElement || (field.tagName !== "SELECT" && field.value !== field.defaultValue));

  const mark = (part, fresh) => {
    const known = new Map([...part.querySelectorAll("[data-key]")].map((one) => [one.dataset.key, one.dataset.version]));
    for (const one of fresh.querySelectorAll("[data-key]")) {
      if (known.size && known.get(one.dataset.key) !== one.dataset.version) one.classList.add("fresh");
    }
  };

  const put = (next) => {
    const focused = document.activeElement ? document.activeElement.id : "";
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = next.getElementById(part.id);
      if (!fresh || fresh.innerHTML === part.innerHTML && fresh.hidden === part.hidden) continue;
      if (inUse(part)) {
        if (part.dataset.version !== fresh.dataset.version) part.classList.add("stale");
        continue;
      }
      // A new form would be another press; the same question keeps the one it has, and the place of the keyboard.
      if (part.dataset.version && part.dataset.version === fresh.dataset.version) continue;
      for (const one of part.querySelectorAll("details")) {
        const same = next.getElementById(one.id);
        if (same) same.open = one.open;
      }
      mark(part, fresh);
      part.replaceWith(document.adoptNode(fresh));
    }
    if (focused && document.activeElement === document.body) {
      const same = document.getElementById(focused);
      if (same) same.focus({ preventScroll: true });
    }
    document.title = next.title;
    const said = document.getElementById("said"), news = next.getElementById("said");
    if (said && news && said.textContent !== news.textContent) said.textContent = news.textContent;
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", redirect: "manual" });
      if (answer.type === "opaqueredirect") { tell("off", "session ended: reload"); stop(); return; }
      // A page that is not there may come to be: an incident whose link was faster than its record.
      if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
      put(new DOMParser().parseFromString(await answer.text(), "text/html"));
      ages();
      if (source) tell("on", "live");
    } catch {
      tell("wait", "not up to date");
    } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  };

  const stop = () => {
    if (source) source.close();
    source = null;
  };

  const open = () => {
    if (source || document.hidden) return;
    const mine = source = new EventSource(where);
    mine.addEventListener("changed", refresh);
    mine.addEventListener("full", () => { tell("wait", "updated every 30 s"); refresh(); });
    mine.addEventListener("beat", () => { if ("everyBeat" in document.body.dataset) refresh(); });
    mine.addEventListener("error", () => {
      tell("wait", "reconnecting");
      if (mine.readyState !== EventSource.CLOSED) return;
      stop();
      setTimeout(open, REOPEN_MS);
    });
  };

  // A browser opens six connections to one host: with a stream in each of six tabs the seventh would wait for ever. So a tab that
  // nobody sees holds none, and looks now and then, for its title.
  const follow = () => {
    clearInterval(poll);
    if (!document.hidden) { open(); return; }
    stop();
    tell("wait", "in the background");
    poll = setInterval(refresh, HIDDEN_MS);
  };

  document.addEventListener("visibilitychange", follow);
  setInterval(ages, 10000);
  follow();
})();
