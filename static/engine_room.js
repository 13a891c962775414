// Steps without a full reload. The page is complete without this file: here, a step fetches the very address its link names
// and moves the attributes of the elements with the same ids. What glides, and for how long, is the style sheet's business.
(() => {
  "use strict";
  const PAUSE_MS = 1600;
  const ASK_AGAIN_MS = 1500;
  const room = document.getElementById("room");
  if (!room) return;

  const byId = (id) => document.getElementById(id);
  let going = null; // the fetch under way
  let timer = 0; // the next step of a play

  // Makes `now` carry what `next` carries, without replacing it: focus stays, and style can glide from the old value.
  function follow(now, next) {
    for (const { name } of [...now.attributes]) {
      if (!next.hasAttribute(name)) now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    if (next.hasAttribute("data-swap") && now.innerHTML !== next.innerHTML) now.innerHTML = next.innerHTML;
  }

  async function show(address) {
    if (going) going.abort();
    going = new AbortController();
    try {
      const answer = await fetch(address, { signal: going.signal, headers: { accept: "text/html" } });
      if (!answer.ok) throw new Error(`answered ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!page.getElementById("room")) throw new Error("no such page");
      for (const next of page.querySelectorAll("#room [id]")) {
        const now = byId(next.id);
        if (now) follow(now, next);
      }
      history.replaceState(null, "", address);
      const card = room.querySelector("tr.now");
      if (card && matchMedia("(max-width: 60rem)").matches) card.scrollIntoView({ block: "center" });
      return true;
    } catch (failure) {
      if (failure.name !== "AbortError") location.assign(address);
      return false;
    }
  }

  const where = () => byId("where").dataset;
  const atEnd = () => where().at === where().last;
  const playing = () => byId("play").dataset.playing === "true";

  function say(isPlaying) {
    byId("play").dataset.playing = String(isPlaying);
    byId("play").textContent = isPlaying ? "Pause" : "Play";
  }

  function stop() {
    clearTimeout(timer);
    if (playing()) say(false);
  }

  async function play() {
    say(true);
    if (atEnd()) {
      const first = new URL(byId("step").href);
      first.searchParams.set("step", "0");
      if (!(await show(first.pathname + first.search))) return;
      say(true);
    }
    next();
  }

  function next() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!playing()) return;
      if (!(await show(byId("step").getAttribute("href")))) return;
      if (atEnd()) stop();
      else {
        say(true);
        next();
      }
    }, PAUSE_MS);
  }

  room.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const link = event.target.closest("a");
    if (!link) return;
    if (link.id === "play") {
      event.preventDefault();
      if (playing()) stop();
      else play();
      return;
    }
    const isStep = link.id === "back" || link.id === "step" || link.classList.contains("to") || link.closest(".steps, .said");
    if (!isStep) return;
    event.preventDefault();
    stop();
    if (link.getAttribute("aria-disabled") !== "true") show(link.getAttribute("href"));
  });

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest("select, input, textarea, button")) return;
    const id = { ArrowLeft: "back", ArrowRight: "step" }[event.key];
    if (!id) return;
    event.preventDefault();
    byId(id).click();
  });

  // While all orders run, ask how far they are.
  function ask() {
    if (byId("every-state").dataset.state !== "running") return;
    setTimeout(async () => {
      if (await show(location.pathname + location.search)) ask();
    }, ASK_AGAIN_MS);
  }

  ask();
  if (playing()) next();
})();
