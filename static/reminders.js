// Small comforts on the reminder pages; every page is complete without them.
(() => {
  "use strict";

  // A form nobody has typed in yet: the browser knows the person's zone, and with it which day and hour it is for them.
  const form = document.querySelector("form[data-fresh]");
  const zone = form?.elements.namedItem("zone");
  if (zone) {
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (own && zone.value !== own) {
      if (![...zone.options].some((option) => option.value === own)) zone.add(new Option(own, own), 0);
      zone.value = own;
      const soon = new Date(Date.now() + 90 * 60000);
      const two = (n) => String(n).padStart(2, "0");
      form.elements.namedItem("date").value = `${soon.getFullYear()}-${two(soon.getMonth() + 1)}-${two(soon.getDate())}`;
      form.elements.namedItem("time").value = `${two(soon.getHours())}:00`;
    }
  }

  // The title counts what is due, also while the tab is in the background.
  const said = document.querySelector("[data-live=due-said]");
  if (said) {
    const title = document.title.replace(/^\(\d+\) /, "");
    const count = () => {
      const due = Number(document.getElementById("due-count")?.dataset.due ?? 0);
      document.title = due > 0 ? `(${due}) ${title}` : title;
    };
    new MutationObserver(count).observe(said, { childList: true, subtree: true, attributes: true });
  }

  const link = document.querySelector("input[data-copy]");
  if (link) {
    link.addEventListener("focus", () => link.select());
    if (navigator.clipboard) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy the link";
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(link.value);
          button.textContent = "Copied";
        } catch {
          link.select();
          button.textContent = "Press Ctrl+C to copy";
        }
      });
      link.after(button);
    }
  }
})();
