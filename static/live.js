// Keeps an open page true. The server says a number when something of this person changed; the page then asks for itself again
// and takes over the parts marked `data-live`. Focus, scrolling and opened details stay; a form that is being typed in is
// never touched. While the tab is hidden nothing is open. Without this file the page has a plain link to reload it.
(() => {
  "use strict";
  const AGAIN_MS = 30000; // after the server refused a stream
  const LOST_MS = 6000; // a stream that ends is taken up again before that, or nobody answers
  const line = document.querySelector("[data-live-line]");
  const announce = document.getElementById("live-said");
  if (!line || !announce || !window.EventSource) return;

  let version = line.dataset.version;
  let stream = null;
  let timer = 0;
  let lost = 0;
  let paused = false;
  let asking = false;
  let behind = false; // a change was told of while another one was being fetched

  const word = line.querySelector("[data-live-word]");
  const button = line.querySelector("[data-live-pause]");

  function say(text) {
    if (word.textContent !== text) word.textContent = text;
  }

  function isTouched(region) {
    const here = document.activeElement;
    if (here && region.contains(here) && here.matches("input, textarea, select")) return true;
    for (const field of region.querySelectorAll("input, textarea, select")) {
      if (field.type === "hidden") continue;
      if (field.matches("select")) {
        for (const option of field.options) if (option.selected !== option.defaultSelected && field.selectedIndex > 0) return true;
      } else if (field.type === "checkbox" || field.type === "radio") {
        if (field.checked !== field.defaultChecked) return true;
      } else if (field.value !== field.defaultValue) return true;
    }
    return false;
  }

  // Where the focus is, in words that find the same thing in the new part.
  function place(region) {
    const here = document.activeElement;
    if (!here || here === region || !region.contains(here)) return null;
    if (here.id) return (part) => part.querySelector(`#${CSS.escape(here.id)}`);
    const owner = here.closest("[id]");
    const within = owner && region.contains(owner) && owner !== region ? owner : region;
    const n = [...within.querySelectorAll(here.tagName)].indexOf(here);
    const id = within === region ? null : within.id;
    return (part) => (id ? part.querySelector(`#${CSS.escape(id)}`) : part)?.querySelectorAll(here.tagName)[n];
  }

  function take(now, next) {
    if (now.innerHTML === next.innerHTML) return "same";
    if (isTouched(now)) return "kept";
    const find = place(now);
    const open = [...now.querySelectorAll("details[open][id]")].map((details) => details.id);
    const [left, top] = [scrollX, scrollY];
    now.innerHTML = next.innerHTML;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    const back = find && find(now);
    if (back) back.focus({ preventScroll: true });
    scrollTo(left, top);
    return "new";
  }

  async function refresh() {
    if (asking) {
      behind = true;
      return;
    }
    asking = true;
    try {
      // Its own address, which after a form is not the one in the address bar.
      const answer = await fetch(line.querySelector("a[href]").href, { headers: { accept: "text/html" }, redirect: "error" });
      if (!answer.ok && answer.status !== 409) throw new Error(`answered ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const told = page.querySelector("[data-live-line]");
      if (!told) throw new Error("another page");
      const became = [];
      for (const next of page.querySelectorAll("[data-live]")) {
        const now = document.querySelector(`[data-live="${CSS.escape(next.dataset.live)}"]`);
        if (now) became.push(take(now, next));
      }
      version = told.dataset.version;
      if (became.includes("kept")) say("There is something new; it is shown when you are done with the form, or when you reload.");
      else say("This page keeps itself up to date.");
      if (became.includes("new")) announce.textContent = "The page was updated.";
    } catch (failure) {
      say("This page could not be brought up to date. ");
    } finally {
      asking = false;
      if (behind) {
        behind = false;
        refresh();
      }
    }
  }

  function listen() {
    clearTimeout(timer);
    if (stream || paused || document.hidden) return;
    stream = new EventSource(line.dataset.stream || "/live");
    stream.addEventListener("open", () => {
      clearTimeout(lost);
      lost = 0;
      say("This page keeps itself up to date.");
    });
    stream.addEventListener("version", (event) => {
      if (event.data !== version) refresh();
    });
    stream.addEventListener("error", () => {
      if (!stream) return;
      if (stream.readyState !== EventSource.CLOSED) {
        lost ||= setTimeout(() => say("Bottle does not answer just now, so this page may be out of date. It tries again. "), LOST_MS);
        return;
      }
      rest();
      say("This page is not kept up to date just now. ");
      timer = setTimeout(listen, AGAIN_MS);
    });
  }

  function rest() {
    clearTimeout(timer);
    clearTimeout(lost);
    lost = 0;
    if (stream) stream.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest();
    else listen();
  });
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => {
    if (event.persisted) listen();
  });
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    if (paused) {
      rest();
      say("Paused: this page stays as it is.");
    } else listen();
  });
  listen();
})();
